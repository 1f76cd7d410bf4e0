"""Reads pickled arrays without running code that a pickle names.

A pickle is a program: it can name any function and have it called. This reader
allows five names and replaces them by harmless stand-ins; it refuses any other
name before import. A few bytes can also request any amount of memory or time,
so all operations are checked before any is executed.
"""

import io
import pickle
import pickletools
from typing import Any

import numpy as np

from slim import errors


def load(content: bytes, origin: str) -> Any:
  """Reads a pickle of dicts, lists, strings, numbers and uint8 arrays.

  Args:
    content: the pickle, of any protocol. Strings of Python 2 become bytes,
      and must be ASCII in protocol 0.
    origin: name of the source, for messages.

  Raises:
    slim.errors.DataError: the pickle is damaged, or contains anything else.
  """
  try:
    _check(content)
    return _plain(_Unpickler(content).load(), {})
  # A damaged or hostile pickle can make the unpickler raise nearly anything.
  except Exception as error:
    raise errors.DataError(
      f'{origin}: expected a pickle of lists, strings, numbers and uint8 '
      f'arrays; received "{error!s:.200}". None of its code was run. Download '
      'the file again, or use the binary archive.'
    ) from error


# The largest published batch, CIFAR-100's, has 300,000.
_MAX_OPERATIONS = 1 << 20
_PUTS = {'PUT', 'BINPUT', 'LONG_BINPUT', 'MEMOIZE'}
_GETS = {'GET', 'BINGET', 'LONG_BINGET'}
# All that picklers of Python 2 and 3 write for these objects.
_OPERATIONS = {
  *_PUTS,
  *_GETS,
  *('PROTO', 'FRAME', 'MARK', 'STOP', 'GLOBAL', 'STACK_GLOBAL'),
  *('REDUCE', 'BUILD', 'NONE', 'NEWTRUE', 'NEWFALSE'),
  *('INT', 'BININT', 'BININT1', 'BININT2', 'LONG', 'LONG1', 'LONG4'),
  *('FLOAT', 'BINFLOAT', 'STRING', 'BINSTRING', 'SHORT_BINSTRING'),
  *('UNICODE', 'BINUNICODE', 'SHORT_BINUNICODE', 'BINUNICODE8'),
  *('BINBYTES', 'SHORT_BINBYTES', 'BINBYTES8'),
  *('EMPTY_DICT', 'DICT', 'SETITEM', 'SETITEMS'),
  *('EMPTY_LIST', 'LIST', 'APPEND', 'APPENDS'),
  *('EMPTY_TUPLE', 'TUPLE', 'TUPLE1', 'TUPLE2', 'TUPLE3'),
}


class _Dtype:
  """Stand-in for numpy.dtype."""

  def __init__(self, code: Any, *_: Any):
    if code not in (b'u1', 'u1'):
      raise pickle.UnpicklingError('an array that is not uint8')

  def __setstate__(self, state: Any) -> None:
    """Ignores the byte order, which uint8 does not have."""


class _Array:
  """Stand-in for numpy.ndarray; holds the uint8 values."""

  def __setstate__(self, state: Any) -> None:
    _, shape, dtype, is_fortran, content = state
    if not isinstance(dtype, _Dtype) or is_fortran:
      raise pickle.UnpicklingError('an array in an unsupported layout')
    self.values = np.frombuffer(content, np.uint8).reshape(shape)


def _reconstruct(kind: Any, *_: Any) -> _Array:
  if kind is not _Array:
    raise pickle.UnpicklingError('an array of an unsupported class')
  return _Array()


_REPLACEMENTS = {
  ('numpy', 'dtype'): _Dtype,
  ('numpy', 'ndarray'): _Array,
  ('numpy._core.multiarray', '_reconstruct'): _reconstruct,
  ('numpy.core.multiarray', '_reconstruct'): _reconstruct,
}


class _Unpickler(pickle.Unpickler):
  def __init__(self, content: bytes) -> None:
    super().__init__(io.BytesIO(content), encoding='bytes')
    # A text takes at least a byte for each character. A pickler writes each
    # text once, but a pickle can have one encoded any number of times.
    self._bytes_left = len(content)

  def find_class(self, module: str, name: str) -> Any:
    if (module, name) == ('_codecs', 'encode'):
      return self._encode
    try:
      return _REPLACEMENTS[module, name]
    except KeyError:
      raise pickle.UnpicklingError(f'the name {module}.{name}') from None

  def _encode(self, text: str, encoding: str) -> bytes:
    """Stand-in for _codecs.encode, with which protocol 2 writes bytes."""
    if encoding not in ('latin1', 'latin-1'):
      raise pickle.UnpicklingError('bytes in an encoding other than latin1')
    self._bytes_left -= len(text)
    if self._bytes_left < 0:
      raise pickle.UnpicklingError('more encoded bytes than it has')
    return text.encode('latin1')


def _check(content: bytes) -> None:
  """Refuses pickles that need far more time or memory than their size.

  A tuple may be a dict key. Hashing it takes time for everything it contains,
  each time it is contained, so no tuple may be used twice.
  """
  memo: dict[int | None, str] = {}
  last = ''
  for number, (operation, argument, _) in enumerate(
    pickletools.genops(content)
  ):
    name = operation.name
    if name not in _OPERATIONS:
      raise pickle.UnpicklingError(f'the operation {name}')
    if number >= _MAX_OPERATIONS:
      raise pickle.UnpicklingError(f'more than {_MAX_OPERATIONS} operations')
    if name in _PUTS:
      index = len(memo) if argument is None else argument
      # The unpickler allocates its memo up to this index.
      if index >= _MAX_OPERATIONS:
        raise pickle.UnpicklingError(f'a value stored at index {index}')
      memo[index] = last
      continue
    if name in _GETS and 'TUPLE' in memo.get(argument, ''):
      raise pickle.UnpicklingError('a tuple that is used twice')
    if name not in ('PROTO', 'FRAME'):
      last = name


def _plain(value: Any, done: dict[int, Any]) -> Any:
  """Replaces stand-ins by arrays; a shared value is converted once.

  Args:
    value: the loaded value.
    done: converted values by identity of the original; is extended.
  """
  if id(value) in done:
    return done[id(value)]
  if isinstance(value, _Array):
    made = value.values
  elif isinstance(value, dict):
    made = {key: _plain(item, done) for key, item in value.items()}
  elif isinstance(value, list):
    made = [_plain(item, done) for item in value]
  elif isinstance(value, (bytes, str, int, float, type(None))):
    return value
  else:
    raise pickle.UnpicklingError(f'a {type(value).__name__}')
  done[id(value)] = made
  return made
