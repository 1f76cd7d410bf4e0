"""What a plan knows of a machine and a network: timed, fitted or read."""

import json
import math
import os
import pathlib
from collections.abc import Iterable
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from terngrad import errors
from terngrad.codec import method as methods
from terngrad.measure.planning import model
from terngrad.measure.processes import peers

# As many as are fitted.
_FITTED = 4
_REFINED = 4
# Of a table of `measure exchange`.
_COLUMNS = {
  'case': str,
  'processes': int,
  'milliseconds': float,
  'elements': int,
}
_Ranges = dict[str, tuple[float, float]]


class Parameters(NamedTuple):
  """All that `model.plan` needs but the variables, the bandwidth and workers.

  Attributes:
    source: where they come from, for readers.
    computing: seconds of a worker's step without exchange.
    overlap: part of it during which messages may travel, in [0, 1].
    efficiency: part of the bandwidth that carries payload, in (0, 1].
    latency: seconds from one process to another.
    coding: what the times of `codes` are multiplied by: that of a worker which
      shares its cores, or has others.
    codes: their costs by text, as `--codec` spells it.
  """

  source: str
  computing: float
  overlap: float
  efficiency: float
  latency: float
  coding: float
  codes: dict[str, model.Coding]

  @property
  def costs(self) -> dict[str, model.Coding]:
    """What `codes` cost a worker."""
    return {
      text: model.Coding(*(self.coding * part for part in cost))
      for text, cost in self.codes.items()
    }

  def network(self, bandwidth: float, workers: int) -> model.Network:
    """The workers behind links of so many bits a second."""
    return model.Network(bandwidth * self.efficiency, self.latency, workers)

  def plan(
    self,
    text: str,
    shapes: Sequence[tuple[int, ...]],
    bandwidth: float,
    workers: int,
  ) -> model.Plan:
    """The step with a code of `codes`."""
    network = self.network(bandwidth, workers)
    cost = self.costs[text]
    return model.plan(text, shapes, self.computing, network, cost, self.overlap)


class Measured(NamedTuple):
  """A step that was measured.

  Attributes:
    text: its code, as `--codec` spells it.
    workers: processes.
    bandwidth: bits a second of each.
    seconds: its median.
  """

  text: str
  workers: int
  bandwidth: float
  seconds: float


def write(path: str | os.PathLike[str], parameters: Parameters) -> None:
  """Writes them as JSON."""
  codes = {text: cost._asdict() for text, cost in parameters.codes.items()}
  fields = parameters._asdict() | {'codes': codes}
  text = json.dumps(fields, indent=1)
  pathlib.Path(path).write_text(f'{text}\n', encoding='utf-8')


def read(path: str | os.PathLike[str]) -> Parameters:
  """The parameters in a file that `write` made.

  Raises:
    errors.ConfigError: the file cannot be read, or holds something else.
  """
  try:
    fields = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
    codes = {
      text: model.Coding(*map(_number, (c['send'], c['receive'], c['more'])))
      for text, c in fields.pop('codes').items()
    }
    source = str(fields.pop('source'))
    numbers = {name: _number(value) for name, value in fields.items()}
    found = Parameters(source=source, codes=codes, **numbers)
    if not 0 < found.efficiency <= 1 or found.overlap > 1:
      raise ValueError('efficiency or overlap above 1')
  except (
    AttributeError,
    KeyError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
  ) as error:
    raise errors.ConfigError(
      'parameters: expected a file as plan --output writes it, received '
      f'{path} ({error}). Write one: plan ... --output=FOLDER makes '
      'parameters.json.'
    ) from error
  return found


def _number(value: float) -> float:
  if type(value) not in (int, float) or not 0 <= value < math.inf:
    raise ValueError(f'expected numbers of at least 0, received {value!r}')
  return float(value)


def read_measured(
  text: str, shapes: Sequence[tuple[int, ...]]
) -> tuple[list[Measured], list[str]]:
  """The steps in a table of `terngrad measure exchange`.

  Args:
    text: path of the CSV file, '@' and the bits a second of its network.
    shapes: of the variables that were meant.

  Returns:
    (the steps, the cases that are left out: those of other programs, and with
    an algorithm of their own).

  Raises:
    errors.ConfigError: it is no such file, or of another net.
  """
  path, _, rate = text.rpartition('@')
  try:
    bandwidth = float(rate)
    if not 1 <= bandwidth < math.inf:
      raise ValueError(f'{rate} bits a second')
    table = pd.read_csv(path)[[*_COLUMNS]].astype(_COLUMNS)
  except (KeyError, OSError, OverflowError, ValueError) as error:
    raise errors.ConfigError(
      'measured steps: expected FILE@BITS with the CSV file of measure '
      f'exchange and its bits a second, such as runs/exchange.csv@1e9, '
      f'received {text} ({error}). Mend the path or the rate.'
    ) from error
  size = sum(methods.sizes_of(shapes))
  strange = table[table['elements'] != size]
  if len(strange):
    case, elements = strange.iloc[0][['case', 'elements']]
    raise errors.ConfigError(
      f'measured steps: expected those of {size:,} parameters, received '
      f' {case} of {path} with {elements:,}. Name its --net.'
    )
  left_out = [
    case for case in table['case'] if '@' in case or peers.is_peer(case)
  ]
  found = [
    Measured(row.case, row.processes, bandwidth, row.milliseconds / 1e3)
    for row in table[~table['case'].isin(left_out)].itertuples()
  ]
  return found, left_out


def fit(
  parameters: Parameters,
  measured: Sequence[Measured],
  shapes: Sequence[tuple[int, ...]],
) -> Parameters:
  """Fits computing, overlap, efficiency and coding to steps that were measured.

  The least sum of squared relative errors over a grid, refined around its best.

  Args:
    parameters: with the codes of all these steps, and a latency.
    measured: 4 at least.
    shapes: of the variables.

  Raises:
    errors.ConfigError: there are too few.
  """
  if len(measured) < _FITTED:
    raise errors.ConfigError(
      f'fitted_to: expected at least {_FITTED} steps, received '
      f'{len(measured)}. Measure more codes, or at another rate.'
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
  """(the best of a grid, narrower ranges around it)."""
  axes = [np.linspace(low, high, 25) for low, high in ranges.values()]
  computing, overlap, efficiency = (
    axis[..., np.newaxis] for axis in np.meshgrid(*axes, indexing='ij')
  )
  travels = wire / efficiency
  rest = (
    seconds - computing - travels + np.minimum(travels, overlap * computing)
  )
  # Linear in the factor of coding, whose best is known.
  part = coded / seconds
  free = not part.any()
  factor = (rest / seconds * part).sum(-1, keepdims=True) / (
    1.0 if free else (part**2).sum()
  )
  factor = np.full_like(factor, 1.0) if free else np.maximum(factor, 0)
  error = ((rest / seconds - factor * part) ** 2).sum(-1)
  place = np.unravel_index(error.argmin(), error.shape)
  best, narrower = {}, {}
  for (name, (low, high)), axis, index in zip(
    ranges.items(), axes, place, strict=True
  ):
    best[name], step = float(axis[index]), 2 * (axis[1] - axis[0])
    narrower[name] = max(low, best[name] - step), min(high, best[name] + step)
  return best | {'coding': float(factor[place][0])}, narrower


def beside(
  parameters: Parameters,
  measured: Iterable[Measured],
  shapes: Sequence[tuple[int, ...]],
) -> pd.DataFrame:
  """What was planned beside what was measured.

  Args:
    parameters: with the codes of these steps.
    measured: steps.
    shapes: of the variables.

  Returns:
    A row a step, with seconds and the relative error.
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
  """Where `plan --output` writes them."""
  return os.path.join(folder, 'parameters.json')
