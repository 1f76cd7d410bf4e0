"""Images per second by the number of devices or processes.

Every value is measured in a separate training run, because a process can split
its CPU into devices only once.
"""

import statistics
import tempfile
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import tqdm
from matplotlib import figure

from terngrad import errors
from terngrad.children import captured
from terngrad.children import endings
from terngrad.children import stderr_copy
from terngrad.training import records

DEVICES, PROCESSES = 'devices', 'processes'
# One more than the first log line, up to which steps are not timed.
LEAST_STEPS = 11
WEAK, STRONG = 'weak', 'strong'


class Point(NamedTuple):
  """The settings of one run.

  Attributes:
    over: what is scaled, `DEVICES` or `PROCESSES`.
    count: number of devices or processes.
    scaling: `WEAK`: a constant batch size per device; `STRONG`: a constant
      total batch size.
    codec: codec in the syntax of `--codec`.
  """

  over: str
  # The column name in scaling.csv; it hides `tuple.count`.
  count: int  # type: ignore[assignment]
  scaling: str
  codec: str


def points(
  devices: Iterable[int], processes: Iterable[int], codecs: Iterable[str]
) -> list[Point]:
  """Returns the runs for all numbers, kinds of scaling and codecs.

  Args:
    devices: numbers of devices in one process, >= 1.
    processes: numbers of processes with one device each.
    codecs: codecs in the syntax of `--codec`.
  """
  return [
    Point(over, count, scaling, codec)
    for codec in codecs
    for over, counts in ((DEVICES, devices), (PROCESSES, processes))
    for scaling in (WEAK, STRONG)
    for count in counts
  ]


def words(
  point: Point,
  command: Sequence[str],
  batch_size: int,
  steps: int,
  folder: str,
) -> list[str]:
  """Returns the arguments of `terngrad` for a run.

  Args:
    point: settings of the run.
    command: a `train` command with its flags.
    batch_size: examples per step of one device in one process.
    steps: number of steps.
    folder: directory for checkpoints and records.
  """
  times = point.count if point.scaling == WEAK else 1
  ours = [
    f'--batch_size={batch_size * times}',
    f'--num_gpus={point.count if point.over == DEVICES else 1}',
    f'--codec={point.codec}',
    f'--max_steps={steps}',
    f'--save_iter={steps}',
    f'--train_dir={folder}',
  ]
  several = point.over == PROCESSES and point.count > 1
  start = ['launch', f'--num_workers={point.count}', '--'] if several else []
  return [*start, *command, *ours]


def measure(
  some: Sequence[Point],
  command: Sequence[str],
  batch_size: int,
  steps: int,
  rounds: int,
) -> pd.DataFrame:
  """Runs all points, in rounds.

  Args:
    some: settings of the runs.
    command: a `train` command with its flags.
    batch_size: examples per step of one device in one process.
    steps: steps per run, at least `LEAST_STEPS`; the first logged interval is
      not timed.
    rounds: runs of each point.

  Returns:
    One row per point: median images per second; `speed-up`, relative to one
    device in one process; least and most images per second.

  Raises:
    errors.TrainingError: a run failed.
  """
  speeds: dict[Point, list[float]] = {point: [] for point in some}
  turns = [point for _ in range(rounds) for point in some]
  for point in tqdm.tqdm(turns, unit='run', disable=None):
    speeds[point].append(_speed(point, command, batch_size, steps))
  return table(speeds)


def _speed(
  point: Point, command: Sequence[str], batch_size: int, steps: int
) -> float:
  """Returns the images per second of one run, without its start-up."""
  with tempfile.TemporaryDirectory() as folder:
    code, output = captured.run(
      words(point, command, batch_size, steps, folder)
    )
    if code:
      raise errors.TrainingError(
        endings.describe(
          f'{point.count} {point.over}, {point.scaling}, {point.codec}',
          code,
          stderr_copy.last_lines(output),
          'Correct the command after `--`.',
        )
      )
    rows = [r for r in records.read(folder) if 'sec_per_batch' in r]
  times = point.count if point.scaling == WEAK else 1
  timed = [row['sec_per_batch'] for row in rows[1:]]
  return batch_size * times / statistics.median(timed)


def table(speeds: Mapping[Point, Sequence[float]]) -> pd.DataFrame:
  """Returns the table of `measure`, given images per second of each run."""
  medians = {point: statistics.median(each) for point, each in speeds.items()}
  return pd.DataFrame(
    {
      **point._asdict(),
      'images/s': medians[point],
      'speed-up': medians[point]
      / medians.get(point._replace(count=1), float('nan')),
      'least': min(each),
      'most': max(each),
    }
    for point, each in speeds.items()
  )


def chart(rows: pd.DataFrame, title: str) -> figure.Figure:
  """Plots images per second by count, in panels for devices and processes.

  Args:
    rows: from `measure`.
    title: title of the chart.
  """
  page = figure.Figure(figsize=(10, 4.5), layout='constrained')
  kinds = rows.groupby('over', sort=False)
  panels = page.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
  colors = {codec: f'C{i}' for i, codec in enumerate(rows['codec'].unique())}
  for axes, (over, panel) in zip(panels, kinds, strict=True):
    for (codec, scaling), line in panel.groupby(
      ['codec', 'scaling'], sort=False
    ):
      axes.plot(
        line['count'],
        line['images/s'],
        'o-' if scaling == WEAK else 's--',
        color=colors[codec],
        label=f'{codec}, {scaling}',
      )
    ideal = np.array([1, panel['count'].max()])
    for one in panel[panel['count'] == 1].groupby('codec')['images/s'].max():
      axes.plot(ideal, one * ideal, color='0.8', zorder=0)
    axes.set(xlabel=over, ylim=(0, None), xticks=sorted(set(panel['count'])))
  panels[0].set_ylabel('images/s; grey: linear speed-up')
  panels[-1].legend(fontsize='small')
  page.suptitle(title)
  return page
