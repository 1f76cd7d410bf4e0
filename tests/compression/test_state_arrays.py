"""Damaged codec states are refused, and ranges need no memory for others."""

import numpy as np
import pytest

import terngrad
from terngrad.codec import policy
from terngrad.compression import state_arrays

SPECS = (policy.VariableSpec('a', (2,)), policy.VariableSpec('b', (2,)))
GOOD = {
  'workers': np.array([0, 2, 2]),
  'variables': state_arrays.encode(SPECS),
  'residual:0': np.ones([2, 2], np.float32),
  'residual:1': np.ones([2, 2], np.float32),
}


def text(value):
  return np.frombuffer(value.encode(), np.uint8)


@pytest.mark.parametrize(
  ('name', 'array'),
  [
    ('workers', np.array([0, 2])),
    ('workers', np.array(2)),
    ('workers', np.array([0.0, 2.0, 2.0])),
    ('workers', np.array([-1, 2, 2])),
    ('workers', np.array([1, 2, 2])),
    ('workers', np.array([0, 0, 2])),
    ('workers', np.array([0, 2, 2**62])),
    ('workers', np.array(['0', '2', '2'])),
    ('variables', text('[')),
    ('variables', text('[' * 100_000)),
    ('variables', text('{}x')),
    ('variables', text('[["a", [2]]]')),
    ('variables', text('[["a", [2]], [7, [2]]]')),
    ('variables', text('[["a", [2]], ["b", [-2]]]')),
    ('variables', text('[["a", [2]], ["b", 2]]')),
    ('variables', text('[["a", [2]], "b"]')),
    ('variables', np.array([255, 254], np.uint8)),
    ('variables', np.ones(3, np.float32)),
    ('residual:2', np.ones([2, 2], np.float32)),
    ('residual:0', np.ones([3, 2], np.float32)),
    ('residual:0', np.float32(1)),
    ('residual:0', np.ones([0, 2], np.float32)),
    ('residual:0', np.ones([2, 2])),
    ('residual:0', np.array([b'a', b'b'])),
  ],
)
def test_damaged_states_are_refused_and_change_nothing(name, array):
  compressor = terngrad.Compressor('error_feedback+topk:ratio=0.5')
  compressor.load(GOOD)
  with pytest.raises(ValueError, match=r'^Codec states: expected .* damaged'):
    compressor.load(GOOD | {name: array})
  assert compressor.get_states().keys() == GOOD.keys()
  np.testing.assert_array_equal(
    compressor.get_states()['residual:0'], GOOD['residual:0']
  )


def test_encoded_variables_are_decoded_unchanged():
  specs = (
    policy.VariableSpec('größe/kernel', (3, 4)),
    policy.VariableSpec('', ()),
  )
  assert state_arrays.decode(state_arrays.encode(specs)) == specs
  assert state_arrays.decode(state_arrays.encode(())) == ()


def test_states_without_their_workers_are_refused():
  others = {name: a for name, a in GOOD.items() if name != 'workers'}
  with pytest.raises(ValueError, match='the workers of residual:0, rec'):
    state_arrays.checked(others)


def test_rows_of_another_number_than_the_workers_are_dropped(caplog):
  compressor = terngrad.Compressor('error_feedback+topk:ratio=0.5')
  gradients = [np.float32([3, 1]), np.float32([1, 3])]
  one_row = {'residual:0': np.ones([1, 2], np.float32)}
  compressor.load(GOOD | one_row)
  terngrad.compress(gradients, compressor, step=0, names=['a', 'b'])
  assert 'Saved codec states of a were dropped' in caplog.text
  residuals = compressor.get_states()
  np.testing.assert_array_equal(residuals['residual:0'], [[0, 1]])
  np.testing.assert_array_equal(residuals['residual:1'], [[2, 0]])


def test_ranges_of_many_absent_workers_need_no_memory():
  """The range of worker 0 of 2**20 begins the variable of one worker alone."""
  codec = 'error_feedback+bidirectional+topk:ratio=0.5'
  compressor = terngrad.Compressor(codec)
  gradient = [np.zeros(8, np.float32)]
  terngrad.compress(gradient, compressor, step=0, names=['a'])
  known = compressor.get_states()
  ranges = [name for name in known if name.startswith('mean_residual')]
  assert ranges
  again = terngrad.Compressor(codec)
  size = 2**20
  rows = {name: np.ones([1, size], np.float32) for name in ranges}
  again.load(known | rows | {'workers': np.array([0, 1, 2**20])})
  again.declare(policy.Variables((0,), (policy.VariableSpec('a', (8,)),)))
  for name in ranges:
    found = again.get_states()[name]
    assert found.shape == known[name].shape
    assert (found == 1).all()


def test_the_range_of_another_worker_keeps_its_place():
  """Worker 1 of 2 has the second half of a variable of 8 elements."""
  compressor = terngrad.Compressor(
    'error_feedback+bidirectional+topk:ratio=0.5'
  )
  gradient = [np.zeros(8, np.float32)]
  terngrad.compress(gradient, compressor, step=0, names=['a'])
  known = compressor.get_states()
  rows = {'mean_residual:0': np.ones([1, 4], np.float32)}
  compressor.load(known | rows | {'workers': np.array([1, 1, 2])})
  found = compressor.get_states()['mean_residual:0']
  np.testing.assert_array_equal(found, [[0, 0, 0, 0, 1, 1, 1, 1]])
