import os
import pathlib
import pickle
import struct

import numpy as np
import pytest

from slim import errors
from slim.datasets.files import pickles
from tests import bounded


class Calls:
  """Pickles as a call."""

  def __init__(self, function, *arguments):
    self.call = function, arguments

  def __reduce__(self):
    return self.call


@pytest.mark.parametrize('protocol', range(6))
def test_plain_values_are_read(protocol):
  value = {'a': [1, 2.5, None, 'text'], b'bytes': b'\x00\xff'}
  assert pickles.load(pickle.dumps(value, protocol), 'here') == value


@pytest.mark.parametrize('protocol', [2, 3, 4])
def test_arrays_are_read(protocol):
  array = np.arange(12, dtype=np.uint8).reshape(3, 4)
  loaded = pickles.load(pickle.dumps({'x': array}, protocol), 'here')
  np.testing.assert_array_equal(loaded['x'], array)


def test_strings_of_python_2_become_bytes():
  # The opcodes that Python 2 writes: {'data': 'ab'}, protocol 2.
  content = b'\x80\x02}q\x00U\x04dataq\x01U\x02abq\x02s.'
  assert pickles.load(content, 'here') == {b'data': b'ab'}


@pytest.mark.parametrize(
  'call',
  [
    lambda path: Calls(os.system, f'touch {path}'),
    lambda path: Calls(eval, f'open({str(path)!r}, "w")'),
    lambda path: Calls(pathlib.Path.touch, path),
    lambda path: Calls(np.save, str(path), 1),
    lambda path: Calls(np.load, str(path)),
  ],
)
def test_no_function_that_a_pickle_names_is_called(tmp_path, call):
  path = tmp_path / 'evil.npy'
  content = pickle.dumps({b'data': call(path)})
  with pytest.raises(errors.DataError, match='received "the name .*None of'):
    pickles.load(content, 'here')
  assert not path.exists()


def test_names_that_lead_through_allowed_modules_are_refused():
  # STACK_GLOBAL with a dotted name would walk attributes.
  content = b'\x80\x04\x8c\x05numpy\x8c\x0bndarray.dot\x93.'
  with pytest.raises(errors.DataError, match='the name numpy.ndarray.dot'):
    pickles.load(content, 'here')


@pytest.mark.parametrize(
  'array',
  [
    np.array([print], dtype=object),
    np.zeros(3, np.float32),
    np.asfortranarray(np.zeros((3, 4), np.uint8)),
  ],
)
def test_other_arrays_are_refused(array):
  with pytest.raises(errors.DataError, match='expected a pickle of lists'):
    pickles.load(pickle.dumps(array, 2), 'here')


@pytest.mark.parametrize('content', [b'', b'junk', b'\x80\x02}', b'\x80\x09.'])
def test_damaged_pickles_are_refused(content):
  with pytest.raises(errors.DataError, match='here: expected a pickle of list'):
    pickles.load(content, 'here')


def nested(levels, begin, one):
  """A pickle in which each level holds the one before twice.

  Args:
    levels: number of them.
    begin: opcodes that push the innermost.
    one: opcodes that make a level of the two on the stack.
  """
  content = b'\x80\x02' + begin + b'q\x00'
  for level in range(levels):
    get = b'h' + bytes([level])
    content += get + get + one + b'q' + bytes([level + 1])
  return content


def lists_filled_later(levels):
  content = b'\x80\x02'
  for level in range(levels):
    inner = b'h' + bytes([level - 1]) if level else b'N'
    content += b']q' + bytes([level]) + b'(' + inner + inner + b'e'
  return content


HOSTILE = {
  'lists': nested(40, b']', b'(\x86') + b'.',
  'tuples': nested(40, b'K\x01', b'\x86') + b'.',
  'keys': b'\x80\x02}' + nested(40, b'K\x01', b'\x86')[2:] + b'Ns.',
  'hidden keys': b'\x80\x04}'
  + nested(40, b'K\x01', b'\x86\x95' + bytes(8))[2:]
  + b'Ns.',
  'type': b'\x80\x02cnumpy\ndtype\n' + lists_filled_later(40)[2:] + b'\x85R.',
  'memo index': b'Nr\xff\xff\xff\x07.',
  'memo indices': b'\x80\x02(' + b']r\xff\xff\x1f\x00' * 3 + b'l.',
  'string': b'T\xff\xff\xff\x7fa.',
  'bytes': b'\x80\x04\x8e' + struct.pack('<Q', 1 << 40) + b'a.',
  'frame': b'\x80\x04\x95' + struct.pack('<Q', 1 << 62) + b'N.',
  'nodes': b'\x80\x02(' + b']' * (1 << 21) + b'l.',
  'deep': b'\x80\x02' + b']' * 100_000 + b'a' * 99_999 + b'.',
  'set': b'\x80\x04\x8f.',
  'number': b'I' + b'7' * 1_000_000 + b'\n.',
}


@pytest.mark.parametrize('name', HOSTILE)
def test_small_files_take_neither_much_time_nor_memory(name):
  with bounded.memory(200 << 20), bounded.seconds(5):
    with pytest.raises(errors.DataError, match='expected a pickle of lists'):
      pickles.load(HOSTILE[name], 'here')


def encoded(size, times):
  """A pickle in which one text is encoded several times."""
  text = b'X' + struct.pack('<I', size) + b'a' * size
  start = b'\x80\x02c_codecs\nencode\nq\x00' + text + b'q\x01X\x06\x00\x00\x00'
  return start + b'latin1q\x02(' + b'h\x00h\x01h\x02\x86R' * times + b'l.'


def test_a_text_encoded_again_and_again_is_refused():
  with bounded.memory(200 << 20), bounded.seconds(5):
    with pytest.raises(errors.DataError, match='more encoded bytes than it ha'):
      pickles.load(encoded(100_000, 100), 'here')
  assert pickles.load(encoded(1000, 1), 'here') == [b'a' * 1000]


def test_a_list_may_be_used_twice():
  content = lists_filled_later(40) + b'.'
  with bounded.memory(200 << 20), bounded.seconds(5):
    loaded = pickles.load(content, 'here')
  first, second = loaded
  assert first is second
