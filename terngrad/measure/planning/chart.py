"""Plots the step times that `model` predicts."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

from matplotlib import figure

from terngrad.measure.planning import model

_BANDWIDTHS = [10 ** (7 + i / 4) for i in range(17)]
_WORKERS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000]


def draw(
  texts: Iterable[str],
  shapes: Sequence[tuple[int, ...]],
  computing: float,
  network: model.Network,
  costs: Mapping[str, model.Coding],
  overlap: float = 0.0,
) -> figure.Figure:
  """Plots step times over bandwidth and workers; arguments as `model.table`."""
  drawn = figure.Figure(figsize=(12, 5), layout='constrained')
  left, right = drawn.subplots(1, 2, sharey=True)
  for text in dict.fromkeys([model.FLOAT32, *texts]):

    def seconds(changed: model.Network, text: str = text) -> float:
      return model.plan(
        text, shapes, computing, changed, costs[text], overlap
      ).step

    left.plot(
      [value / 1e6 for value in _BANDWIDTHS],
      [seconds(model.set_bandwidth(network, value)) for value in _BANDWIDTHS],
      label=text,
    )
    right.plot(
      _WORKERS,
      [seconds(network._replace(workers=count)) for count in _WORKERS],
      label=text,
    )
  for axes, label in (
    (left, f'Mbit/s, {network.workers} workers'),
    (right, f'workers, {network.bandwidth / 1e6:g} Mbit/s'),
  ):
    axes.axhline(computing, color='black', linewidth=0.5, linestyle='--')
    axes.set(xscale='log', yscale='log', xlabel=label)
  left.set_ylabel('seconds per step; dashed: computing only')
  right.legend(fontsize='small')
  return drawn
