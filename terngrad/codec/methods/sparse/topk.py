"""The elements of largest magnitude of each variable, and their indices.

Aji and Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP
2017, https://arxiv.org/abs/1704.05021; Lin et al., Deep Gradient Compression,
ICLR 2018, https://arxiv.org/abs/1712.01887. Departures: the elements are
exactly the largest of each variable, where both papers estimate a threshold;
and what is left out is not kept here: `error_feedback` does that. Without it,
most elements never move.
"""

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import few_elements
from terngrad.codec.stages import wire
from terngrad.native import sparse_ops

MAGNITUDE = 0x7FFFFFFF
# From so many elements on one of so many is in the sample; a prime, since
# columns of matrices are powers of two.
_SAMPLED, _STRIDE = 2**16, 61


class TopK(by_variable.FewElements):
  """The largest elements of each variable; of equal ones the first.

  To be used with error feedback.
  """

  kind: str = 'topk'

  def __init__(self, ratio: float = 0.01) -> None:
    """Makes the code.

    Args:
      ratio: of a variable's n elements k = max(1, ceil(ratio n)) are sent; in
        (0, 1]. An element that is sent costs 64 bits.

    Raises:
      ValueError: `ratio` is out of its range.
    """
    check_ratio(self.kind, ratio)
    self.name, self.ratio = f'{self.kind}({ratio:g})', ratio

  def find(
    self, elements: tf.Tensor, number: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """See `in_order`."""
    return in_order(elements, number)

  def num_words(self, num_elements: int) -> int:
    """See `wire.CompositePacking`."""
    return 2 * count(self.ratio, num_elements)

  def encode_variable(
    self, values: tf.Tensor, draws: Callable[[], tf.Tensor]
  ) -> tf.Tensor:
    """See `by_variable.ByVariable`."""
    # The indices within the variable, in rising order; then the values.
    indices, sent = self.find(values, count(self.ratio, values.shape[0]))
    return tf.concat([indices, tf.bitcast(sent, tf.int32)], axis=0)

  def elements(
    self, words: tf.Tensor, num_elements: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """See `by_variable.FewElements`."""
    indices, values = tf.split(words, 2)
    indices = few_elements.inside(indices, num_elements)
    return indices, tf.bitcast(values, tf.float32)

  def check(
    self, words: np.ndarray, num_elements: int
  ) -> tuple[wire.Packing, np.ndarray, int] | None:
    """Refuses other orders of indices, and values that are not finite."""
    indices, values = np.split(words, 2)
    few_elements.check(
      self.name, indices, values.view(np.float32), num_elements
    )
    return None


class _OnKernels(few_elements.OnKernels, TopK, twin_of=TopK):
  find = staticmethod(sparse_ops.largest)


def check_ratio(name: str, ratio: float) -> None:
  """Raises ValueError unless a part of the elements is one; see `topk`."""
  if not 0 < ratio <= 1:
    raise ValueError(
      f'{name}: expected a ratio above 0 and at most 1, received {ratio}. Use '
      '0.01 to send one element of a hundred.'
    )


def count(ratio: float, num_elements: int) -> int:
  """How many of a variable's elements a ratio means: at least one if any."""
  return min(num_elements, max(1, math.ceil(ratio * num_elements)))


def largest(values: tf.Tensor, number: int) -> tf.Tensor:
  """The indices of the largest magnitudes, of equal ones the first.

  TensorFlow selects where XLA sorts: 20 ms against 500 for 10^6 elements. Of
  many elements those are looked at that reach what a sample makes likely; where
  they are too few, all.

  Args:
    values: float32 [n].
    number: k <= n.

  Returns:
    int32 [k], the largest first.
  """
  # As integers magnitudes have one order everywhere, subnormals included.
  magnitudes = tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), MAGNITUDE)
  size = magnitudes.shape[0]

  def of_all() -> tf.Tensor:
    return tf.math.top_k(magnitudes, number).indices

  if size < _SAMPLED or number > size // 4:
    return of_all()
  sample = magnitudes[::_STRIDE]
  # What reaches the sample's own: about so many of all, six deviations more.
  own = number / _STRIDE
  own = min(math.ceil(own + 6 * own**0.5 + 1), sample.shape[0])
  found = tf.where(magnitudes >= tf.math.top_k(sample, own).values[-1])[:, 0]

  def of_found() -> tf.Tensor:
    indices = tf.math.top_k(tf.gather(magnitudes, found), number).indices
    return tf.cast(tf.gather(found, indices), tf.int32)

  return tf.cond(tf.shape(found)[0] >= number, of_found, of_all)


def in_order(values: tf.Tensor, number: int) -> tuple[tf.Tensor, tf.Tensor]:
  """The indices of the largest magnitudes in rising order, and the elements.

  Of equal magnitudes the first.

  Args:
    values: float32 [n].
    number: k <= n.

  Returns:
    int32 [k] and float32 [k].
  """
  indices = tf.sort(largest(values, number))
  return indices, tf.gather(values, indices)
