"""Accuracy of codes in this project's sweeps, beside float32."""

import functools
from typing import NamedTuple

from terngrad.codec.methods import registry
from terngrad.measure.planning import accuracy_table


class SweepSource(NamedTuple):
  """A committed sweep.

  Attributes:
    heading: of the column.
    setting: net, data and length of the runs, for readers.
  """

  heading: str
  setting: str


# By the folder in experiments/.
SWEEPS = {
  'lenet_codecs': SweepSource(
    'MNIST, points', 'LeNet on MNIST, 4 workers, 2,000 steps of momentum SGD'
  ),
  'cifar10_causes': SweepSource(
    'CIFAR-10 (JPEG), points',
    'cifar10_alexnet on a copy of CIFAR-10 stored as JPEG, 2 workers, 8,000 '
    'steps of Adam at 2e-4, where float32 is 2.3 points below its accuracy at '
    '4e-4',
  ),
}
# Codes are compared by the names of their methods, which hold all options, with
# this number of workers.
_WORKERS = 4
# A single seed's difference is that of two runs.
_DIGITS = 1


class Difference(NamedTuple):
  """The accuracy of a code beside that of float32 with the same seeds.

  Attributes:
    points: mean difference in percentage points; below 0, the code is worse.
    half: half the width of its 95 % interval; None for one seed.
    seeds: number of seeds.
  """

  points: float
  half: float | None
  seeds: int

  def __str__(self) -> str:
    """Returns text for a table."""
    if self.half is None:
      return f'{self.points:+.2f} (1 seed)'
    return f'{self.points:+.2f} ± {self.half:.2f}'


def find(text: str) -> dict[str, Difference]:
  """Returns what the sweeps measured of a code.

  Args:
    text: codec in the syntax of `--codec`.

  Returns:
    By key of `SWEEPS`; sweeps without this code are missing.
  """
  name = registry.method(text, _WORKERS).name
  return {s: found[name] for s, found in _by_name().items() if name in found}


def largest_loss(text: str) -> float | None:
  """Returns the largest loss to float32 that a sweep measured.

  In points, rounded to 0.1: smaller differences are within noise, and larger
  ones of a single seed may be too. 0 if
  the code was never worse, and None unless all sweeps have it: a code that was
  tried on the easy data only would seem the best.
  """
  found = find(text)
  if len(found) < len(SWEEPS):
    return None
  lowest = min(difference.points for difference in found.values())
  return round(max(0.0, -lowest), _DIGITS)


@functools.cache
def _by_name() -> dict[str, dict[str, Difference]]:
  """Returns the table by sweep and by name of the method."""
  return {
    sweep: {
      registry.method(text, _WORKERS).name: Difference(*values)
      for text, values in rows.items()
    }
    for sweep, rows in accuracy_table.TABLE.items()
  }
