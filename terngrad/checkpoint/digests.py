"""Equality of replicas on other machines, by digests of their bits."""

import tensorflow as tf

from terngrad.cluster import equality


def make_check(replicas):
  """Makes a check of replicas that moves eight bytes a variable.

  Args:
    replicas: tuple of `replicas.Replica`, on any devices.

  Returns:
    A function that raises `errors.TrainingError` where two replicas differ, and
    names the variable and the devices. Equal digests prove equal bits but for
    one chance in 2**32 a variable.
  """

  @tf.function
  def digests():
    found = []
    for replica in replicas:
      with tf.device(replica.device):
        values = [tf.convert_to_tensor(v) for v in replica.variables()]
        found.append(_digests(values))
    return found

  def check():
    names = [variable.name for variable in replicas[0].variables()]
    devices = [replica.device for replica in replicas]
    equality.check([found.numpy() for found in digests()], names, devices)

  return check


@tf.function(jit_compile=True)
def _digests(values):
  """int64 [variables]; one program, since each costs a compilation."""
  return tf.stack([digest(value) for value in values])


def digest(values):
  """An int64 [] of the bits of float32 [...], the same on every device.

  Each element's bits times an odd number that tells its index: sums that wrap
  around do not depend on their order.
  """
  bits = tf.bitcast(tf.reshape(values, [-1]), tf.int32)
  indices = tf.range(tf.size(bits, tf.int64), dtype=tf.int64)
  # 2**64 divided by the golden ratio spreads indices over 64 bits.
  odd = 2 * indices * tf.constant(-7046029254386353131, tf.int64) + 1
  mixed = tf.cast(bits, tf.int64) * odd
  return tf.reduce_sum(tf.bitwise.bitwise_xor(mixed, mixed // 2**29))
