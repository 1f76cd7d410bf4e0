import os
import pathlib
import pickle

import numpy as np
import pytest

from slim import errors
from slim.datasets.files import pickles


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
def test_nothing_that_a_pickle_names_is_run(tmp_path, call):
  path = tmp_path / 'evil.npy'
  content = pickle.dumps({b'data': call(path)})
  with pytest.raises(errors.DataError, match='received "the name .*Nothing'):
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
