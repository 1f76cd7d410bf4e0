"""Bandwidths as people write them: 1e9, 100Mbit, 25GB/s."""

import math
import re

from terngrad import errors

_NUMBER = re.compile(r'[\d.]+(?:e[+-]?\d+)?', re.IGNORECASE)
_UNIT = re.compile(
  r'(?P<prefix>[kmgt]?)(?P<binary>i?)(?P<kind>bits?|bytes?|b)(?:/s|ps|)',
  re.IGNORECASE,
)
_PREFIXES = ('', 'k', 'M', 'G', 'T')


def parse(name: str, text: str | float) -> float:
  """Reads the bandwidth that a flag holds; see `read`.

  Args:
    name: the flag, for the error message.
    text: as for `read`, or the number.

  Raises:
    errors.ConfigError: the text is no bandwidth.
  """
  try:
    return read(str(text))
  except ValueError as error:
    raise errors.ConfigError(
      f'{name}: expected bits per second, at least 1, as a number or with a '
      f'unit (100Mbit, 1Gbit/s, 25GB/s), {error}. Write for example '
      f'--{name}=100Mbit.'
    ) from error


def read(text: str) -> float:
  """Reads a bandwidth.

  Examples:
    >>> read('1e9'), read('100Mbit'), read('25GB/s')
    (1000000000.0, 100000000.0, 200000000000.0)

  Args:
    text: a number of bits per second, or a number and a unit: `bit`, `b` (bits)
      or `B` (bytes), with k, M, G, T, Ki, Mi, Gi or Ti in front, with or
      without `/s` or `ps` behind.

  Returns:
    Bits per second, at least 1.

  Raises:
    ValueError: the text is no bandwidth.
  """
  words = text.strip()
  number = _NUMBER.match(words)
  try:
    found = float(number[0]) * _factor(words[number.end() :]) if number else 0.0
  except ValueError:
    found = 0.0
  # Written so that NaN fails.
  if not 1 <= found < math.inf:
    raise ValueError(f'received {text!r}')
  return found


def _factor(unit: str) -> float:
  """Returns the bits per second of a unit; NaN if there is no such unit."""
  found = _UNIT.fullmatch(unit.strip() or 'bit')
  if not found:
    return math.nan
  kind, base = found['kind'], 1024 if found['binary'] else 1000
  # A single letter is a bit or, as a capital, a byte.
  bits = 8 if kind == 'B' or kind.lower().startswith('byte') else 1
  names = [prefix.lower() for prefix in _PREFIXES]
  power = names.index(found['prefix'].lower())
  return math.nan if found['binary'] and not power else bits * base**power


def describe(bandwidth: float) -> str:
  """Formats bits per second, such as '100 Mbit/s'."""
  power = 0
  while power + 1 < len(_PREFIXES) and bandwidth >= 1000 ** (power + 1):
    power += 1
  return f'{bandwidth / 1000**power:.4g} {_PREFIXES[power]}bit/s'
