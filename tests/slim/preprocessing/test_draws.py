import numpy as np
import pytest
import tensorflow as tf

from slim.preprocessing import draws

COUNT = 20000


def sample():
  stream = tf.data.Dataset.range(COUNT).map(
    lambda number: draws.uniform(
      tf.stack([tf.constant(7, tf.int64), number]), 2
    )
  )
  return np.stack(list(stream.as_numpy_iterator()))


@pytest.mark.statistical
@pytest.mark.slow
def test_numbers_of_many_seeds_are_uniform_and_independent():
  values = sample()
  assert values.min() >= 0
  assert values.max() < 1
  # Of n uniform numbers the mean has a standard deviation of sqrt(1 / 12 n),
  # and the correlation of two columns one of 1 / sqrt(n); 5 of them.
  bound = 5 / np.sqrt(COUNT)
  assert np.abs(values.mean(0) - 0.5).max() < bound / np.sqrt(12)
  assert abs(np.corrcoef(values.T)[0, 1]) < bound
  # Seeds that follow each other.
  assert abs(np.corrcoef(values[:-1, 0], values[1:, 0])[0, 1]) < bound


def test_numbers_do_not_depend_on_how_many_are_drawn():
  seed = tf.constant([3, 2**40], tf.int64)
  whole = draws.uniform(seed, 9)
  for count in (1, 4, 5):
    np.testing.assert_array_equal(draws.uniform(seed, count), whole[:count])


def test_both_halves_of_a_seed_count():
  seeds = [[1, 2], [2, 1], [1, 3], [2, 2], [1, 2 + 2**32]]
  values = {float(draws.uniform(tf.constant(s, tf.int64), 1)[0]) for s in seeds}
  assert len(values) == len(seeds)


def test_index_reaches_every_value_and_no_other():
  last = np.nextafter(np.float32(1), np.float32(0))
  number = tf.constant([0.0, 1 / 3 - 1e-6, 1 / 3 + 1e-6, last])
  np.testing.assert_array_equal(draws.index(number, 3), [0, 0, 1, 2])
  # 2^22 * (1 - 2^-24) would be rounded up.
  assert draws.index(tf.constant(last), 2**22) == 2**22 - 1


def test_between_begins_at_low_and_ends_below_high():
  np.testing.assert_array_equal(
    draws.between(tf.constant([0.0, 0.5]), -2.0, 4.0), [-2, 1]
  )
