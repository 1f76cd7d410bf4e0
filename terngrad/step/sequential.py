"""Loops over the nodes of a device, one after the other."""

from typing import NamedTuple

import tensorflow as tf


def map_nodes(device, workers, specs, body):
  """What `body` returns for the workers of a device, one after the other.

  Args:
    device: its name.
    workers: range, not empty.
    specs: for each tensor of a worker (dtype, shape; None for any).
    body: takes a worker's number, int32 [], returns a list of tensors.

  Returns:
    For each of `specs` a `tf.TensorArray`, or a `Single` of one worker's.
  """
  if len(workers) == 1:
    # Without the loop nothing has to be stacked, that is copied.
    with tf.device(device):
      return [Single(value) for value in body(tf.constant(workers.start))]
  arrays = [
    tf.TensorArray(dtype, size=len(workers), element_shape=shape)
    for dtype, shape in specs
  ]

  def iterate(node, arrays):
    with tf.device(device):
      values = body(workers.start + node * workers.step)
      return node + 1, [
        array.write(node, value)
        for array, value in zip(arrays, values, strict=True)
      ]

  _, arrays = tf.while_loop(
    lambda node, _: node < len(workers),
    iterate,
    (tf.constant(0), arrays),
    parallel_iterations=1,
  )
  return arrays


class Single(NamedTuple):
  """What stands for a TensorArray of one element."""

  value: tf.Tensor

  def read(self, index):
    """The element."""
    del index
    return self.value

  def stack(self):
    """The element with a leading axis; no copy."""
    return tf.expand_dims(self.value, 0)
