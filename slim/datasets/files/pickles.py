"""Reads pickled arrays without running anything that a pickle names.

A pickle is a program: it may name any function and have it called. The ones
read here may name five, all of which are replaced by harmless stand-ins; all
else is refused before it is looked up.
"""

import io
import pickle
from typing import Any

import numpy as np

from slim import errors


def load(content: bytes, origin: str) -> Any:
  """Reads a pickle of dicts, lists, strings, numbers and uint8 arrays.

  Args:
    content: the pickle, of any protocol; strings of Python 2 become bytes.
    origin: of it, for messages.

  Returns:
    The object.

  Raises:
    slim.errors.DataError: it is damaged, or names anything else.
  """
  try:
    loaded = _Unpickler(io.BytesIO(content), encoding='bytes').load()
    return _plain(loaded)
  # A damaged or hostile pickle can make the unpickler raise nearly anything.
  except Exception as error:
    raise errors.DataError(
      f'{origin}: expected a pickle of lists, strings, numbers and uint8 '
      f'arrays; received "{error}". Nothing of it was run. Download the file '
      'again, or take the binary archive.'
    ) from error


class _Dtype:
  """Stands for numpy.dtype."""

  def __init__(self, code: Any, *_: Any):
    if code not in (b'u1', 'u1'):
      raise pickle.UnpicklingError(f'an array of type {code!r}')

  def __setstate__(self, state: Any) -> None:
    """Takes what says how bytes are ordered, which one byte has no use for."""


class _Array:
  """Stands for numpy.ndarray, and holds what an array is made of."""

  def __setstate__(self, state: Any) -> None:
    _, shape, dtype, is_fortran, content = state
    if not isinstance(dtype, _Dtype) or is_fortran:
      raise pickle.UnpicklingError('an array in another layout')
    self.values = np.frombuffer(content, np.uint8).reshape(shape)


def _reconstruct(kind: Any, *_: Any) -> _Array:
  if kind is not _Array:
    raise pickle.UnpicklingError(f'an array that is {kind!r}')
  return _Array()


def _encode(text: str, encoding: str) -> bytes:
  """Stands for _codecs.encode, by which protocol 2 writes bytes."""
  if encoding not in ('latin1', 'latin-1'):
    raise pickle.UnpicklingError(f'bytes as {encoding!r}')
  return text.encode('latin1')


_STAND_INS = {
  ('_codecs', 'encode'): _encode,
  ('numpy', 'dtype'): _Dtype,
  ('numpy', 'ndarray'): _Array,
  ('numpy._core.multiarray', '_reconstruct'): _reconstruct,
  ('numpy.core.multiarray', '_reconstruct'): _reconstruct,
}


class _Unpickler(pickle.Unpickler):
  def find_class(self, module: str, name: str) -> Any:
    try:
      return _STAND_INS[module, name]
    except KeyError:
      raise pickle.UnpicklingError(f'the name {module}.{name}') from None


def _plain(value: Any) -> Any:
  """Replaces the stand-ins by arrays."""
  if isinstance(value, _Array):
    return value.values
  if isinstance(value, dict):
    return {key: _plain(item) for key, item in value.items()}
  if isinstance(value, list):
    return [_plain(item) for item in value]
  if isinstance(value, (bytes, str, int, float, type(None))):
    return value
  raise pickle.UnpicklingError(f'a {type(value).__name__}')
