"""Equality check of replicas on different machines, by 64-bit digests."""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.cluster import equality
from terngrad.codec.stages import tracing
from terngrad.step import replicas


class Check:
  """An equality check that transfers eight bytes per variable."""

  def __init__(self, copies: Sequence[replicas.Replica]) -> None:
    """Stores the replicas, which may be on any devices."""
    self._copies = copies

  def run(self) -> None:
    """Compares the current values of the replicas.

    Different bits have equal digests with a chance of 1 in 2**32 per variable.

    Raises:
      errors.TrainingError: two replicas differ; the message names the variable
        and the devices.
    """
    names = [variable.name for variable in self._copies[0].variables()]
    devices = [replica.device for replica in self._copies]
    found = [digests.numpy() for digests in self._digests()]
    equality.check(found, names, devices)

  @tracing.function
  def _digests(self) -> list[tf.Tensor]:
    found = []
    for replica in self._copies:
      with tf.device(replica.device):
        values = [tf.convert_to_tensor(v) for v in replica.variables()]
        found.append(_digests(values))
    return found


@tracing.compiled
def _digests(values: list[tf.Tensor]) -> tf.Tensor:
  """Returns int64 [variables], in one XLA program to compile only once."""
  return tf.stack([digest(value) for value in values])


def digest(values: tf.Tensor) -> tf.Tensor:
  """Returns an int64 [] digest of float32 [...], equal on every device.

  Each element's bits are multiplied by an odd number that depends on the index.
  The products are added with wraparound, so their order does not matter.
  """
  bits = tf.bitcast(tf.reshape(values, [-1]), tf.int32)
  indices = tf.range(tf.size(bits, tf.int64), dtype=tf.int64)
  # 2**64 divided by the golden ratio spreads indices over 64 bits.
  odd = 2 * indices * tf.constant(-7046029254386353131, tf.int64) + 1
  mixed = tf.cast(bits, tf.int64) * odd
  return tf.reduce_sum(tf.bitwise.bitwise_xor(mixed, mixed // 2**29))
