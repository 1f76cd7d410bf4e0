"""Sources whose examples are read by index."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from slim.datasets import examples


@dataclasses.dataclass(frozen=True)
class ExampleSource:
  """Examples that can be read in any order.

  Attributes:
    count: number of examples, >= 1.
    num_classes: number of classes; labels are below it.
    labels: name by label, or None.
    read: reads the example at an index, int64 [], in [0, count). tf.data
      stages call it, several at a time.
    digest: digest of what is known of the examples before they are read, as in
      `read_options.SplitInfo`.
  """

  count: int
  num_classes: int
  labels: dict[int, str] | None
  read: Callable[[tf.Tensor], examples.Stored]
  digest: str | None = None


def from_python(
  read: Callable[[int], tuple[bytes, bytes, tuple[int, int], int]],
  index: tf.Tensor,
) -> examples.Stored:
  """Calls a Python function that reads an example, in a tf.data stage.

  Args:
    read: takes the index; returns the encoded image, its format, its size and
      its label, as in `examples.Stored`.
    index: int64 [].
  """

  def columns(number: np.ndarray) -> list[np.ndarray]:
    encoded, image_format, size, label = read(int(number))
    return [
      # dtype object: NumPy strings lose their trailing zero bytes.
      np.array(encoded, object),
      np.array(image_format, object),
      np.array(size, np.int32),
      np.array(label, np.int64),
    ]

  encoded, image_format, size, label = tf.numpy_function(
    columns,
    [index],
    [tf.string, tf.string, tf.int32, tf.int64],
    # Lets tf.data call it ahead of time and in any order.
    stateful=False,
  )
  return examples.Stored(
    encoded=tf.ensure_shape(encoded, []),
    image_format=tf.ensure_shape(image_format, []),
    size=tf.ensure_shape(size, [2]),
    boxes=tf.zeros([0, 4]),
    label=tf.ensure_shape(label, []),
  )
