"""Equality of replicas on other machines, by digests of their bits."""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.cluster import equality
from terngrad.step import replicas


class Check:
  """A check of replicas that moves eight bytes a variable."""

  def __init__(self, copies: Sequence[replicas.Replica]) -> None:
    """Takes replicas, on any devices."""
    self._copies = copies

  def run(self) -> None:
    """Compares the replicas as they are now.

    Equal digests prove equal bits but for one chance in 2**32 a variable.

    Raises:
      errors.TrainingError: two differ; names the variable and the devices.
    """
    names = [variable.name for variable in self._copies[0].variables()]
    devices = [replica.device for replica in self._copies]
    found = [digests.numpy() for digests in self._digests()]
    equality.check(found, names, devices)

  @tf.function
  def _digests(self) -> list[tf.Tensor]:
    found = []
    for replica in self._copies:
      with tf.device(replica.device):
        values = [tf.convert_to_tensor(v) for v in replica.variables()]
        found.append(_digests(values))
    return found


@tf.function(jit_compile=True)
def _digests(values: list[tf.Tensor]) -> tf.Tensor:
  """int64 [variables]; one program, since each costs a compilation."""
  return tf.stack([digest(value) for value in values])


def digest(values: tf.Tensor) -> tf.Tensor:
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
