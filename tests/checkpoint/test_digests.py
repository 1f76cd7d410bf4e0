import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.checkpoint import digests
from terngrad.codec.stages import tracing
from terngrad.step import replicas


def replica(device, values):
  with tf.device(device):
    variable = tf.Variable(values, name='kernel')
    average = tf.Variable(values)
  return replicas.Replica(device, (variable,), (), ({},), (average,))


def pair(one, other):
  return replica('/CPU:0', one), replica('/CPU:1', other)


def test_equal_replicas_pass():
  digests.Check(pair([1.0, -2.0], [1.0, -2.0])).run()


@pytest.mark.parametrize(
  'other',
  [
    [-2.0, 1.0, 0.0],  # the same numbers in another order
    [1.0, -2.0, -0.0],  # equal as numbers, not as bits
    [1.0, -2.0000002, 0.0],  # the last bit
    [1.0, 0.0, 0.0],
  ],
)
def test_a_differing_replica_is_named(other):
  check = digests.Check(pair([1.0, -2.0, 0.0], other)).run
  with pytest.raises(errors.TrainingError, match='kernel:0 on /CPU:1 to equal'):
    check()


def test_the_same_check_finds_a_later_difference():
  one, other = pair([1.0, 2.0], [1.0, 2.0])
  check = digests.Check((one, other)).run
  check()
  other.trainable[0].assign([1.0, 3.0])
  with pytest.raises(errors.TrainingError):
    check()


def test_digests_of_a_thousand_one_bit_changes_differ():
  values = tf.random.stateless_normal([1000], [1, 2])
  bits = tf.bitcast(values, tf.int32)

  @tracing.function(jit_compile=True)
  def changed(place):
    flips = tf.one_hot(place, 1000, on_value=1, dtype=tf.int32)
    return digests.digest(
      tf.bitcast(tf.bitwise.bitwise_xor(bits, flips), tf.float32)
    )

  found = {int(changed(tf.constant(place))) for place in range(1000)}
  assert len(found) == 1000
