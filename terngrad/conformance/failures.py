"""How claims report: expected, received, remedy."""

import re
import traceback
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np

from terngrad import errors

# How the text of an error begins that TensorFlow met while it traced, and a
# frame in such a text.
_WHILE_TRACING = 'in user code:'
_FRAME = re.compile(r'File "(.+)", line (\d+), in (\S+)')


class ClaimFailed(Exception):
  """A method breaks a claim.

  Attributes:
    expected: what the claim demands.
    received: what the method did.
    remedy: what its author should change, a sentence.
  """

  def __init__(self, expected: str, received: object, remedy: str) -> None:
    """Takes the three parts of the message."""
    super().__init__(f'expected {expected}, received {received}. {remedy}')
    self.expected, self.received, self.remedy = expected, received, remedy


class NotApplicable(Exception):
  """A claim does not concern a method; the message says why."""


def expect(holds: object, expected: str, received: object, remedy: str) -> None:
  """Raises `ClaimFailed` with these parts unless `holds` is true."""
  if not holds:
    raise ClaimFailed(expected, received, remedy)


def bits_of(arrays: Sequence[Any]) -> np.ndarray:
  """Returns float32 tensors or arrays as one int32 [elements].

  NaN equals NaN, and 0.0 differs from -0.0.
  """
  flat = [np.ravel(a).astype(np.float32).view(np.int32) for a in arrays]
  return np.concatenate(flat)


def expect_equal(
  actual: np.ndarray, wanted: np.ndarray, expected: str, remedy: str
) -> None:
  """Raises `ClaimFailed` unless two integer arrays are equal.

  Args:
    actual: words, or bits from `bits_of`, of the method.
    wanted: what they should be.
    expected: what the claim demands; the message adds where they differ.
    remedy: what to change.
  """
  if actual.shape != wanted.shape:
    received = f'{actual.size} numbers in place of {wanted.size}'
    raise ClaimFailed(expected, received, remedy)
  different = np.flatnonzero(actual != wanted)
  if different.size:
    first = different[0]
    raise ClaimFailed(
      expected,
      f'other bits in {different.size} of {actual.size} numbers, first in '
      f'number {first} ({_described(actual[first])} in place of '
      f'{_described(wanted[first])})',
      remedy,
    )


def _described(number: np.int32) -> str:
  """Returns a number as hexadecimal word and as float32."""
  as_float = np.array(number, np.int32).view(np.float32)
  return f'0x{int(number) & 0xFFFFFFFF:08x}, {as_float:.9g} as float32'


def describe(error: Exception) -> str:
  """Returns the message for an exception of a method, with its last line."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  text = (lines or [''])[0]
  if text == _WHILE_TRACING:
    text = lines[-1].removeprefix(f'{type(error).__name__}: ')
  frames = [*traceback.extract_tb(error.__traceback__), *_frames_in(lines)]
  last = errors.author_frame(frames) or frames[-1]
  return (
    f'expected a result, received {type(error).__name__}: {text} '
    f'({last.filename}, line {last.lineno}: {last.line}). Correct the method.'
  )


def _frames_in(lines: Iterable[str]) -> traceback.StackSummary:
  """Returns the frames that TensorFlow moved into the text of an error."""
  found = filter(None, map(_FRAME.match, lines))
  return traceback.StackSummary.from_list(
    [(one[1], int(one[2]), one[3], None) for one in found]
  )
