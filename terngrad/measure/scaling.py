"""Images a second by the number of devices, and of processes.

Every figure is that of a training run of its own: a process can split its CPU
into devices only once.
"""

import os
import statistics
import subprocess
import sys
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
from terngrad import signal_guard
from terngrad import signals
from terngrad.training import records

DEVICES, PROCESSES = 'devices', 'processes'
WEAK, STRONG = 'weak', 'strong'


class Point(NamedTuple):
  """A run.

  Attributes:
    over: what there are several of, `DEVICES` or `PROCESSES`.
    count: how many.
    scaling: `WEAK`, the batch of one for each; `STRONG`, one batch
      for all.
    codec: as `--codec` spells it.
  """

  over: str
  # By this name it is a column of scaling.csv.
  count: int  # type: ignore[assignment]
  scaling: str
  codec: str


def points(
  devices: Iterable[int], processes: Iterable[int], codecs: Iterable[str]
) -> list[Point]:
  """The runs of all numbers, kinds of scaling and codes.

  Args:
    devices: numbers of devices in one process, >= 1.
    processes: numbers of processes with a device each.
    codecs: texts as `--codec` spells them.
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
  """What stands behind `terngrad` for a run.

  Args:
    point: the run.
    command: a `train` command with its flags.
    batch_size: examples a step of one device in one process.
    steps: of the run.
    folder: for its checkpoints and records.
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
  """Runs all points in turns.

  Args:
    some: what to run.
    command: see `words`.
    batch_size: see `words`.
    steps: see `words`; the first of them are not timed.
    rounds: runs of each point.

  Returns:
    A row a point: the median images a second, what this is of one device in one
    process (`speed-up`), and the least and the most.

  Raises:
    errors.TrainingError: a run did not end well.
  """
  speeds: dict[Point, list[float]] = {point: [] for point in some}
  turns = [point for _ in range(rounds) for point in some]
  for point in tqdm.tqdm(turns, unit='run', disable=None):
    speeds[point].append(_speed(point, command, batch_size, steps))
  return table(speeds)


def _run(words: list[str]) -> tuple[int, str]:
  """(Exit code, what it said) of a command of `terngrad`."""
  with subprocess.Popen(
    [sys.executable, '-m', 'terngrad.cli.main', *words],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    errors='replace',
    env=os.environ | signals.environment(),
  ) as process:
    try:
      said, _ = process.communicate()
    except BaseException:
      # It starts processes of its own, which must not outlive it. The number of
      # one that has ended may be another's.
      if process.poll() is None:
        signal_guard.kill_below(process.pid)
        process.kill()
      raise
  return process.returncode, said


def _speed(
  point: Point, command: Sequence[str], batch_size: int, steps: int
) -> float:
  """Images a second of one run, after those steps in which it starts."""
  with tempfile.TemporaryDirectory() as folder:
    code, said = _run(words(point, command, batch_size, steps, folder))
    if code:
      last = '\n'.join(said.splitlines()[-10:])
      raise errors.TrainingError(
        f'{point.count} {point.over}, {point.scaling}, {point.codec}: expected '
        f'a run that ends with 0, received {code}. It said:\n'
        f'{last}\n'
        'Mend that in the command behind `--`.'
      )
    rows = [r for r in records.read(folder) if 'sec_per_batch' in r]
  times = point.count if point.scaling == WEAK else 1
  timed = [row['sec_per_batch'] for row in rows[1:] or rows]
  return batch_size * times / statistics.median(timed)


def table(speeds: Mapping[Point, Sequence[float]]) -> pd.DataFrame:
  """The table of `measure`, from images a second."""
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
  """Images a second by the number, a panel for devices and one for processes.

  Args:
    rows: from `measure`.
    title: of the chart.
  """
  page = figure.Figure(figsize=(10, 4.5), layout='constrained')
  kinds = rows.groupby('over', sort=False)
  panels = page.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
  colors = {codec: f'C{i}' for i, codec in enumerate(rows['codec'].unique())}
  for axes, (over, own) in zip(panels, kinds, strict=True):
    for (codec, scaling), line in own.groupby(['codec', 'scaling'], sort=False):
      axes.plot(
        line['count'],
        line['images/s'],
        'o-' if scaling == WEAK else 's--',
        color=colors[codec],
        label=f'{codec}, {scaling}',
      )
    ideal = np.array([1, own['count'].max()])
    for one in own[own['count'] == 1].groupby('codec')['images/s'].max():
      axes.plot(ideal, one * ideal, color='0.8', zorder=0)
    axes.set(xlabel=over, ylim=(0, None), xticks=sorted(set(own['count'])))
  panels[0].set_ylabel('images/s; grey: as many times as fast')
  panels[-1].legend(fontsize='small')
  page.suptitle(title)
  return page
