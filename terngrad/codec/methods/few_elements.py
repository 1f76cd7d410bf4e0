"""Words that tell of few elements: their indices, and their values.

Functions here take `elements` or what it gives: it takes the int32 words of a
payload and returns (int32 [k] indices, float32 [k] values); an index n, the
number of all elements, is of none. It must be safe for any words.
"""

from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import method

Elements = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def inside(indices: tf.Tensor, num_elements: int) -> tf.Tensor:
  """int32 [k] indices, with n for those that no variable of n elements has."""
  outside = (indices < 0) | (indices >= num_elements)
  return tf.where(outside, num_elements, indices)


def scattered(
  indices: tf.Tensor, values: tf.Tensor, num_elements: int
) -> tf.Tensor:
  """float32 [n]: zeros but for the elements."""
  indices, zeros = indices[:, tf.newaxis], tf.zeros([num_elements + 1])
  return tf.tensor_scatter_nd_update(zeros, indices, values)[:-1]


def sum_rows(
  parts: Sequence[tf.Tensor], elements: Elements, num_elements: int
) -> tf.Tensor:
  """Adds payloads in the order of the workers, to one tensor.

  Args:
    parts: see `method.Piece`.
    elements: see above.
    num_elements: n.

  Returns:
    float32 [n].
  """
  words = method.rows_in_order(parts)

  def add(row: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    indices, values = elements(words[row])
    indices = indices[:, tf.newaxis]
    return row + 1, tf.tensor_scatter_nd_add(total, indices, values)

  # One past the end, for what is no element.
  _, total = tf.while_loop(
    lambda row, _: row < words.shape[0],
    add,
    (tf.constant(0), tf.zeros([num_elements + 1])),
    parallel_iterations=1,
  )
  return total[:-1]


def rows(
  parts: Sequence[tf.Tensor], elements: Elements
) -> tuple[tf.Tensor, tf.Tensor]:
  """(int32 [r, k] indices, float32 [r, k] values) of r payloads, in order."""
  words = method.rows_in_order(parts)
  found = [elements(words[row]) for row in range(words.shape[0])]
  indices, values = zip(*found, strict=True)
  return tf.stack(indices), tf.stack(values)
