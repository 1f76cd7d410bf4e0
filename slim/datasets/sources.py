"""Sources that are read by the number of an example."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slim.datasets import examples


@dataclasses.dataclass(frozen=True)
class ExampleSource:
  """Examples that can be read in any order.

  Attributes:
    count: of the examples, >= 1.
    num_classes: labels are below it.
    labels: name by label, or None.
    read: reads an example, within tf.data stages, several at a time; takes its
      index, int64 [], in [0, count).
  """

  count: int
  num_classes: int
  labels: dict[int, str] | None
  read: Callable[[tf.Tensor], examples.Stored]


def from_python(
  read: Callable[[int], tuple[bytes, bytes, tuple[int, int], int]],
  index: tf.Tensor,
) -> examples.Stored:
  """What a function of Python reads, within a tf.data stage.

  Args:
    read: takes the index; returns the encoded image, its format, its size and
      its label, see `examples.Stored`.
    index: int64 [].
  """

  def columns(number: np.ndarray) -> list[np.ndarray]:
    encoded, image_format, size, label = read(int(number))
    return [
      # As objects: NumPy would cut zero bytes off the end of a string.
      np.array(encoded, object),
      np.array(image_format, object),
      np.array(size, np.int32),
      np.array(label, np.int64),
    ]

  encoded, image_format, size, label = tf.numpy_function(
    columns,
    [index],
    [tf.string, tf.string, tf.int32, tf.int64],
    # tf.data may then run it ahead and in any order.
    stateful=False,
  )
  return examples.Stored(
    encoded=tf.ensure_shape(encoded, []),
    image_format=tf.ensure_shape(image_format, []),
    size=tf.ensure_shape(size, [2]),
    boxes=tf.zeros([0, 4]),
    label=tf.ensure_shape(label, []),
  )
