"""Plots the step times that `model` predicts."""

import itertools
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib import figure

from terngrad.measure.planning import model
from terngrad.measure.planning import rates

_BANDWIDTHS = [10 ** (7 + i / 4) for i in range(17)]
_WORKERS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000]
# Ten dark colours, then the same ones with other lines.
_COLOURS = mpl.color_sequences['tab10']
_STYLES = ('-', '--', ':', '-.')


def draw(
  texts: Iterable[str],
  shapes: Sequence[tuple[int, ...]],
  computing: float,
  network: model.Network,
  costs: Mapping[str, model.Coding],
  overlap: float = 0.0,
  row_bytes: float = 0.0,
  local_steps: int = 1,
  statistics: float = 0.0,
) -> figure.Figure:
  """Plots step times over bandwidth and workers; arguments as `model.table`.

  Each code has a line of its own colour and style; the legend is beside the
  plots.
  """
  drawn = figure.Figure(figsize=(14, 5), layout='constrained')
  left, right = drawn.subplots(1, 2, sharey=True)
  styles = itertools.cycle(itertools.product(_STYLES, _COLOURS))
  for text in dict.fromkeys([model.FLOAT32, *texts]):

    def seconds(changed: model.Network, text: str = text) -> float:
      cost = costs[text]
      return model.plan(
        *(text, shapes, computing, changed, cost),
        *(overlap, row_bytes, local_steps, statistics),
      ).step

    line, colour = ('-', 'black') if text == model.FLOAT32 else next(styles)
    look: dict[str, Any] = {'label': text, 'linestyle': line, 'color': colour}
    left.plot(
      [value / 1e6 for value in _BANDWIDTHS],
      [seconds(model.set_bandwidth(network, value)) for value in _BANDWIDTHS],
      **look,
    )
    right.plot(
      _WORKERS,
      [seconds(network._replace(workers=count)) for count in _WORKERS],
      **look,
    )
  for axes, label in (
    (left, f'Mbit/s, {network.workers} workers'),
    (right, f'workers, {rates.describe(network.bandwidth)}'),
  ):
    axes.axhline(computing, color='black', linewidth=0.5, linestyle='--')
    axes.set(xscale='log', yscale='log', xlabel=label)
  left.set_ylabel('seconds per step; dashed: computing only')
  handles, labels = right.get_legend_handles_labels()
  drawn.legend(handles, labels, loc='outside right upper', fontsize='small')
  return drawn
