"""The pass of a worker of several devices."""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.stages import random_bits
from terngrad.exchange import device_groups
from terngrad.step import passes
from terngrad.step import replicas as replicas_lib

# Device i folds this number + i into the worker's key. Codes fold in the index
# of a bucket, parts of a batch fold in larger numbers, dropout negative ones.
_FIRST_KEY = 2**29


class DeviceAverage(passes.WrappedPass):
  """Averages gradients, scores and new statistics over a worker's devices.

  The devices compute equal parts of the worker's batch at the same time. The
  first one adds the results in the order of the devices. Without dropout and
  batch normalization the gradient is that of the whole batch up to rounding;
  batch normalization sees the examples of one device.
  """

  def __init__(
    self,
    node_pass: passes.Pass,
    replicas: Sequence[replicas_lib.Replica],
    is_local: bool,
  ) -> None:
    """Stores the pass and the devices.

    Args:
      node_pass: of the examples of one device.
      replicas: of the devices; the first device is that of the worker.
      is_local: True if the worker's parameters are not those of the replicas.
        Then the other devices get copies of them in every pass.
    """
    super().__init__(node_pass)
    self._replicas = replicas
    self._is_local = is_local

  def gradients(
    self,
    parameters: list[tf.Tensor],
    non_trainable: list[tf.Tensor],
    images: tf.Tensor | list[tf.Tensor],
    labels: tf.Tensor | list[tf.Tensor],
    key: tf.Tensor,
    scale: tf.Tensor | None = None,
  ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """Averages the results of all devices; see `passes.Pass.gradients`.

    `images` and `labels` may be lists with one tensor per device.
    """
    first = self._replicas[0].device
    with tf.device(first):
      images, labels = self._split(images), self._split(labels)
    rows = []
    for number, replica in enumerate(self._replicas):
      with tf.device(replica.device):
        values = parameters, non_trainable
        if number:
          values = self._values(replica, *values)
        gradients, scores, moments = self._node_pass.gradients(
          *values,
          images[number],
          labels[number],
          random_bits.fold_in(key, tf.constant(_FIRST_KEY + number)),
          scale,
        )
        rows.append([*gradients, scores, *moments])
    with tf.device(first):
      means = device_groups.average(rows)
    size = len(parameters)
    return means[:size], means[size], means[size + 1 :]

  def _split(self, tensor: tf.Tensor | list[tf.Tensor]) -> list[tf.Tensor]:
    """Splits examples into those of each device."""
    if isinstance(tensor, list):
      return tensor
    return tf.split(tensor, len(self._replicas))

  def _values(
    self,
    replica: replicas_lib.Replica,
    parameters: list[tf.Tensor],
    non_trainable: list[tf.Tensor],
  ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Returns the values of the model on another device than the first."""
    moments = non_trainable[: self.num_statistics]
    if not self._is_local:
      parameters, moments = list(replica.trainable), list(replica.statistics)
    # On the current device: reads of its variables, or copies of tensors.
    values = list(map(tf.identity, parameters))
    others = list(map(tf.identity, [*moments, *replica.frozen]))
    return values, others
