"""Predicts what the steps of runs on one machine would take on several hosts.

`terngrad plan` times codes itself. Here both parts come from finished runs. The
workers of a run on one machine compute one after the other, or share its cores,
so a host with one worker needs 1/P of the float32 run's step. The coding time
is the rest of another run's step: that of all P workers, an upper limit for one
host. The transfer is that of `measure.planning.model`.
"""

import statistics
from collections.abc import Mapping
from collections.abc import Sequence

import pandas as pd

from terngrad import errors
from terngrad.checkpoint import folder as run_folder
from terngrad.codec import method as methods
from terngrad.exchange import algorithms
from terngrad.measure.planning import model
from terngrad.training import records

NETWORKS = {'100 Mbit/s': 1e8, '1 Gbit/s': 1e9}


def step_seconds(folder: str) -> float:
  """Returns the median seconds of a run's steps.

  Args:
    folder: path of the run's --train_dir, or of the directory that holds it as
      `train`.

  Raises:
    errors.ConfigError: there is no run, or it has recorded no step.
  """
  trained = run_folder.find_run(folder, 'runs')
  found = [
    record['sec_per_batch']
    for record in records.read(trained)
    if record.get('sec_per_batch') is not None
  ]
  if not found:
    raise errors.ConfigError(
      f'{trained}: expected a {records.FILE_NAME} with seconds of steps, '
      'received none. Pass the folder of a run that has logged a step.'
    )
  # The first steps include the tracing of the step.
  return statistics.median(found[1:] or found)


def table(
  seconds: Mapping[str, float],
  codecs: Sequence[str],
  shapes: Sequence[tuple[int, ...]],
  num_workers: int,
) -> pd.DataFrame:
  """Predicts the steps of runs on hosts with one worker each.

  Args:
    seconds: median seconds of each run's steps on one machine, by name.
    codecs: the codec of each run, in the syntax of `--codec`; the first is
      'identity'.
    shapes: shapes of the variables.
    num_workers: workers of each run.

  Returns:
    One run per row: its name, its seconds on one machine, and those on hosts
    for each of `NETWORKS`.
  """
  plain = next(iter(seconds.values()))
  size = sum(methods.sizes_of(shapes))
  rows = []
  for (name, here), codec in zip(seconds.items(), codecs, strict=True):
    cost = model.Coding(max(0.0, here - plain) / size, 0.0, 0.0)
    row = {'gradients': name, 's/step here': here}
    for label, bandwidth in NETWORKS.items():
      network = model.Network(
        bandwidth, algorithms.GIGABIT.latency, num_workers
      )
      planned = model.plan(codec, shapes, plain / num_workers, network, cost)
      row[f'{num_workers} hosts, {label}'] = planned.step
    rows.append(row)
  return pd.DataFrame(rows)
