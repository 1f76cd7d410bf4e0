"""Many launches, one synchronization."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.measure import launches

CPU = '/CPU:0'


# In one call from Python, in several.
@pytest.mark.parametrize('times', [1, 5, 8, 19])
def test_work_is_launched_several_times_and_waited_for_once(monkeypatch, times):
  waits, counter = [], tf.Variable(0)
  monkeypatch.setattr(launches, 'wait', lambda: waits.append(1))

  def work(i, value):
    counter.assign_add(i)
    return [value + tf.cast(i, tf.float32)]

  run = launches.repeatable(CPU, work, tf.constant([2.0, 3.0]))
  (last,) = run(times)
  np.testing.assert_array_equal(last, [2.0 + times - 1, 3.0 + times - 1])
  assert counter.numpy() == sum(range(times))
  assert len(waits) == 1


@pytest.mark.parametrize('times', [5, 8, 19])
def test_equal_work_is_not_left_out(times):
  done = []

  def add(value):
    done.append(value)
    return value

  def work(i, value):
    del i
    return [tf.numpy_function(add, [value], tf.float32, stateful=False)]

  launches.repeatable(CPU, work, tf.constant(1.0))(times)
  assert len(done) == times


def test_a_copy_has_the_same_values_in_other_memory():
  (copied,) = launches.memory_copy(CPU, 1001)(3)
  np.testing.assert_array_equal(copied, np.ones(1001))
  assert launches.empty(CPU)(2)[0].shape == (1,)


def test_words_keep_their_bits_as_floats_and_other_types_stay():
  # A signalling NaN, a subnormal number, -0.
  words = tf.constant([0x7F800001, 1, -(2**31)], tf.int32)
  (floats, whole) = launches.as_floats([words, tf.constant(3, tf.int64)])
  assert floats.dtype == tf.float32 and whole.dtype == tf.int64
  np.testing.assert_array_equal(tf.bitcast(floats, tf.int32), words)
