"""Sequential map over the workers of one device.

It is a `tf.while_loop` with `parallel_iterations=1`. The activations of a
worker are freed before the next worker begins, and the graph has the same size
for 2 workers and for 64.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class SingleValue(NamedTuple):
  """One value with the interface of a `tf.TensorArray`, without a copy."""

  value: tf.Tensor | list[tf.Tensor]

  def read(self, index: tf.Tensor) -> tf.Tensor | list[tf.Tensor]:
    """Returns the value; `index` is ignored."""
    del index
    return self.value

  def stack(self) -> tf.Tensor:
    """Returns the value, a tensor, with a leading axis of 1; no copy."""
    return tf.expand_dims(self.value, 0)


def worker_map(
  device: str,
  workers: range,
  specs: Sequence[tuple[tf.DType, Sequence[int] | None]],
  function: Callable[[tf.Tensor], Sequence[tf.Tensor | list[tf.Tensor]]],
) -> list[SingleValue | tf.TensorArray]:
  """Calls a function for each worker of a device, one after the other.

  Args:
    device: name of the device.
    workers: indices of the workers, not empty.
    specs: (dtype, shape) of each tensor that `function` returns; a shape of
      None is any.
    function: takes a worker's index, int32 []; returns a list of tensors.

  Returns:
    For each of `specs` a `tf.TensorArray` over the workers, or a `SingleValue`
    for one worker.
  """
  if len(workers) == 1:
    # Without a loop nothing is stacked, which would copy.
    with tf.device(device):
      return [
        SingleValue(value) for value in function(tf.constant(workers.start))
      ]
  # Each round reads the carried gradients again.
  arrays = [
    tf.TensorArray(
      dtype, len(workers), clear_after_read=False, element_shape=shape
    )
    for dtype, shape in specs
  ]

  def iterate(
    index: tf.Tensor, arrays: list[tf.TensorArray]
  ) -> tuple[tf.Tensor, list[tf.TensorArray]]:
    with tf.device(device):
      values = function(workers.start + index * workers.step)
      return index + 1, [
        array.write(index, value)
        for array, value in zip(arrays, values, strict=True)
      ]

  _, arrays = tf.while_loop(
    lambda index, _: index < len(workers),
    iterate,
    (tf.constant(0), arrays),
    parallel_iterations=1,
  )
  return arrays


def index_of(worker: tf.Tensor, workers: range) -> tf.Tensor:
  """Computes a worker's index among those of its device, int32 []."""
  return (worker - workers.start) // workers.step
