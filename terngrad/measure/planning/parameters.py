"""Parameters of a machine and a network for plans: timed, fitted or read."""

import json
import math
import os
import pathlib
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from slim.datasets.records import disk
from terngrad import errors
from terngrad.codec import method as methods
from terngrad.measure.planning import model
from terngrad.measure.planning import rates
from terngrad.measure.processes import peers

# Number of fitted parameters; at least as many measured steps are needed.
_FITTED = 4
_REFINED = 4
# Columns of a table of `measure exchange`.
_COLUMNS = {
  'case': str,
  'processes': int,
  'milliseconds': float,
  'elements': int,
}
_Ranges = dict[str, tuple[float, float]]


class Parameters(NamedTuple):
  """The inputs of `model.plan` except shapes, bandwidth and workers.

  Attributes:
    source: origin of the values, for readers.
    computing: seconds of a worker's step without exchange.
    overlap: fraction of `computing` during which messages may be transferred,
      in [0, 1].
    efficiency: fraction of the bandwidth that carries payload, in (0, 1].
    latency: seconds from one process to another.
    coding: factor on the costs in `codes`, for a worker that shares its cores
      or has other cores.
    codes: measured costs by codec, in the syntax of `--codec`.
    statistics: number of moving statistics of the net.
  """

  source: str
  computing: float
  overlap: float
  efficiency: float
  latency: float
  coding: float
  codes: dict[str, model.Coding]
  statistics: float = 0.0

  @property
  def costs(self) -> dict[str, model.Coding]:
    """Costs of the codecs for a worker: `codes` multiplied by `coding`."""
    return {
      text: cost._replace(
        send=self.coding * cost.send,
        receive=self.coding * cost.receive,
        more=self.coding * cost.more,
        adding=self.coding * cost.adding,
      )
      for text, cost in self.codes.items()
    }

  def network(self, bandwidth: float, workers: int) -> model.Network:
    """Returns the network with this nominal bandwidth, in bits per second."""
    return model.Network(bandwidth, self.latency, workers, self.efficiency)

  def plan(
    self,
    text: str,
    shapes: Sequence[tuple[int, ...]],
    bandwidth: float,
    workers: int,
  ) -> model.Plan:
    """Predicts the step with a codec in `codes`."""
    network = self.network(bandwidth, workers)
    cost = self.costs[text]
    return model.plan(
      *(text, shapes, self.computing, network, cost, self.overlap),
      statistics=self.statistics,
    )


class MeasuredSeconds(NamedTuple):
  """A measured step time.

  Attributes:
    text: codec in the syntax of `--codec`.
    workers: number of processes.
    bandwidth: bits per second of each process.
    seconds: median step time.
  """

  text: str
  workers: int
  bandwidth: float
  seconds: float


def write(path: str | os.PathLike[str], parameters: Parameters) -> None:
  """Writes parameters to a JSON file.

  Raises:
    errors.TrainingError: it cannot be written; an old one stays.
  """
  codes = {text: cost._asdict() for text, cost in parameters.codes.items()}
  fields = parameters._asdict() | {'codes': codes}
  text = json.dumps(fields, indent=1)
  with errors.explain_write_errors(os.fspath(path)):
    disk.write_text(path, f'{text}\n')


def read(path: str | os.PathLike[str]) -> Parameters:
  """Reads the parameters in a file that `write` made.

  Raises:
    errors.ConfigError: the file cannot be read or holds something else.
  """
  try:
    fields = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
    codes = {
      text: read_cost(cost) for text, cost in fields.pop('codes').items()
    }
    source = str(fields.pop('source'))
    numbers = {name: _number(value) for name, value in fields.items()}
    found = Parameters(source=source, codes=codes, **numbers)
    if not 0 < found.efficiency <= 1 or found.overlap > 1:
      raise ValueError('expected efficiency in (0, 1] and overlap in [0, 1]')
  except (
    AttributeError,
    KeyError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
  ) as error:
    raise errors.ConfigError(
      'parameters: expected the parameters.json of a plan, received '
      f'{path} ({error}). `terngrad plan --output=FOLDER` writes one to FOLDER.'
    ) from error
  return found


def read_cost(fields: Mapping[str, float]) -> model.Coding:
  """Reads a cost as `write` stores it; earlier versions store fewer fields."""
  parts = fields['send'], fields['receive'], fields['more']
  optional = fields.get('spread', 0.0), fields.get('adding', 1.0)
  return model.Coding(*map(_number, (*parts, *optional)))


def _number(value: float) -> float:
  if type(value) not in (int, float) or not 0 <= value < math.inf:
    raise ValueError(f'expected numbers of at least 0, received {value!r}')
  return float(value)


def read_measured(
  text: str, shapes: Sequence[tuple[int, ...]]
) -> tuple[list[MeasuredSeconds], list[str]]:
  """Reads the steps in a table of `terngrad measure exchange`.

  Args:
    text: path of the CSV file, '@' and the bits per second of its network.
    shapes: shapes of the variables that the table should be about.

  Returns:
    (the steps; the excluded cases: other programs, and explicit algorithms).

  Raises:
    errors.ConfigError: there is no such table, it is of another net, or a step
      has no time or no process.
  """
  path, _, bits = text.rpartition('@')
  try:
    bandwidth = rates.read(bits)
    table = pd.read_csv(path)[[*_COLUMNS]].astype(_COLUMNS)
  except (KeyError, OSError, OverflowError, ValueError) as error:
    raise errors.ConfigError(
      'measured steps: expected FILE@BITS with the CSV file of measure '
      'exchange and the bits per second of its network, such as '
      f'runs/exchange.csv@100Mbit, received {text} ({error}). Correct it.'
    ) from error
  size = sum(methods.sizes_of(shapes))
  mismatched = table[table['elements'] != size]
  if len(mismatched):
    case, elements = mismatched.iloc[0][['case', 'elements']]
    raise errors.ConfigError(
      f'measured steps: expected a net of {size:,} parameters, received '
      f'{case} in {path} with {elements:,}. Set --net to the measured net.'
    )
  excluded = [
    case for case in table['case'] if '@' in case or peers.is_peer(case)
  ]
  found = [
    MeasuredSeconds(row.case, row.processes, bandwidth, row.milliseconds / 1e3)
    for row in table[~table['case'].isin(excluded)].itertuples()
  ]
  for step in found:
    if step.workers < 1 or not 0 < step.seconds < math.inf:
      raise errors.ConfigError(
        'measured steps: expected at least 1 process and milliseconds above 0, '
        f'received {step.text} in {path} with {step.workers} processes and '
        f'{1e3 * step.seconds:g} ms. Remove the row, or measure it again.'
      )
  return found, excluded


def fit(
  parameters: Parameters,
  measured: Sequence[MeasuredSeconds],
  shapes: Sequence[tuple[int, ...]],
) -> Parameters:
  """Fits computing, overlap, efficiency and coding to measured steps.

  Minimizes the sum of squared relative errors over a grid, which is refined
  around its minimum.

  Args:
    parameters: hold the latency and the costs of all codecs in `measured`.
    measured: at least 4 steps.
    shapes: shapes of the variables.

  Raises:
    errors.ConfigError: there are too few steps.
  """
  if len(measured) < _FITTED:
    raise errors.ConfigError(
      f'fitted_to: expected at least {_FITTED} steps, received '
      f'{len(measured)}. Measure more codecs, or at another bandwidth.'
    )
  bare = parameters._replace(computing=0.0, efficiency=1.0, coding=1.0)
  plans = [bare.plan(m.text, shapes, m.bandwidth, m.workers) for m in measured]
  seconds = np.array([m.seconds for m in measured])
  coded = np.array([plan.coding for plan in plans])
  wire = np.array([plan.wire for plan in plans])
  ranges = {
    'computing': (0.0, seconds.min()),
    'overlap': (0.0, 1.0),
    'efficiency': (0.5, 1.0),
  }
  for _ in range(_REFINED):
    best, ranges = _search(ranges, seconds, coded, wire)
  return parameters._replace(
    computing=best['computing'],
    overlap=best['overlap'],
    efficiency=best['efficiency'],
    coding=best['coding'],
  )


def _search(
  ranges: _Ranges, seconds: np.ndarray, coded: np.ndarray, wire: np.ndarray
) -> tuple[dict[str, float], _Ranges]:
  """Returns (the best grid point, narrower ranges around it)."""
  axes = [np.linspace(low, high, 25) for low, high in ranges.values()]
  computing, overlap, efficiency = (
    axis[..., np.newaxis] for axis in np.meshgrid(*axes, indexing='ij')
  )
  travels = wire / efficiency
  rest = (
    seconds - computing - travels + np.minimum(travels, overlap * computing)
  )
  # The time is linear in the coding factor: its optimum has a closed form.
  part = coded / seconds
  free = not part.any()
  factor = (rest / seconds * part).sum(-1, keepdims=True) / (
    1.0 if free else (part**2).sum()
  )
  factor = np.full_like(factor, 1.0) if free else np.maximum(factor, 0)
  error = ((rest / seconds - factor * part) ** 2).sum(-1)
  best_index = np.unravel_index(error.argmin(), error.shape)
  best, narrower = {}, {}
  for (name, (low, high)), axis, index in zip(
    ranges.items(), axes, best_index, strict=True
  ):
    best[name], step = float(axis[index]), 2 * (axis[1] - axis[0])
    narrower[name] = max(low, best[name] - step), min(high, best[name] + step)
  return best | {'coding': float(factor[best_index][0])}, narrower


def compare(
  parameters: Parameters,
  measured: Iterable[MeasuredSeconds],
  shapes: Sequence[tuple[int, ...]],
) -> pd.DataFrame:
  """Compares predicted with measured steps.

  Args:
    parameters: hold the costs of all codecs in `measured`.
    measured: measured steps.
    shapes: shapes of the variables.

  Returns:
    One row per step, with measured and predicted seconds and relative error.
  """
  rows = []
  for text, workers, bandwidth, seconds in measured:
    planned = parameters.plan(text, shapes, bandwidth, workers).step
    rows.append(
      (text, workers, bandwidth / 1e6, seconds, planned, planned / seconds - 1)
    )
  columns = ['codec', 'workers', 'Mbit/s', 'measured', 'planned', 'error']
  return pd.DataFrame(rows, columns=columns)


def default_path(folder: str) -> str:
  """Returns the path to which `plan --output` writes parameters."""
  return os.path.join(folder, 'parameters.json')
