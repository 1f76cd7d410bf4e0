"""The workers of one device, one after the other.

They run in a `tf.while_loop` with `parallel_iterations=1`: a worker's
activations are freed before the next one's begin, and the graph is the same for
1 worker and for 64.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class Single(NamedTuple):
  """One value in place of a `tf.TensorArray` of one element.

  Attributes:
    value: a tensor, or a list of tensors.
  """

  value: tf.Tensor | list[tf.Tensor]

  def read(self, index: tf.Tensor) -> tf.Tensor | list[tf.Tensor]:
    """The element."""
    del index
    return self.value

  def stack(self) -> tf.Tensor:
    """The element with a leading axis; no copy."""
    return tf.expand_dims(self.value, 0)


def worker_map(
  device: str,
  workers: range,
  specs: Sequence[tuple[tf.DType, Sequence[int] | None]],
  function: Callable[[tf.Tensor], Sequence[tf.Tensor | list[tf.Tensor]]],
) -> list[Single | tf.TensorArray]:
  """Calls a function for the workers of a device, one after the other.

  Args:
    device: its name.
    workers: their numbers, not empty.
    specs: (dtype, shape; None for any) of each tensor that `function` returns.
    function: takes a worker's number, int32 [], returns a list of tensors.

  Returns:
    For each of `specs` a `tf.TensorArray`, or the `Single` of one worker.
  """
  if len(workers) == 1:
    # Without the loop nothing is stacked, that is copied.
    with tf.device(device):
      return [Single(value) for value in function(tf.constant(workers.start))]
  # What is carried is read once more in each round.
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
  """A worker's index among those of its device, int32 []."""
  return (worker - workers.start) // workers.step
