"""Top-k sparsification: the largest elements of each variable, with indices.

Aji and Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP
2017, https://arxiv.org/abs/1704.05021; Lin et al., Deep Gradient Compression,
ICLR 2018, https://arxiv.org/abs/1712.01887. Departures: the elements are
exactly the largest of each variable, where both papers estimate a threshold;
and this code keeps no residual: use it with `error_feedback`. Without error
feedback, most weights never change.
"""

import math
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import few_elements
from terngrad.codec.stages import wire
from terngrad.native import sparse_ops

MAGNITUDE = 0x7FFFFFFF
# Gradients of _SAMPLED elements or more are sampled: every _STRIDE-th element.
# The stride is a prime, because matrices often have 2**i columns.
_SAMPLED, _STRIDE = 2**16, 61


class TopK(by_variable.FewElementsByVariable):
  """Sends the largest elements of each variable; of equal ones the first.

  Use it with error feedback.
  """

  kind: str = 'topk'

  def __init__(self, ratio: float = 0.01) -> None:
    """Creates the code.

    Args:
      ratio: fraction of elements sent, in (0, 1]: of a variable's n elements
        k = max(1, ceil(ratio n)) are sent. A sent element costs 64 bits.

    Raises:
      ValueError: `ratio` is out of its range.
    """
    check_ratio(self.kind, ratio)
    self.name, self.ratio = f'{self.kind}({ratio:g})', ratio
    self.traits = self.traits._replace(dense=is_dense(ratio))

  def find(
    self, elements: tf.Tensor, number: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the largest elements; see `largest_by_index`."""
    return largest_by_index(elements, number, self.sorts)

  def num_words(self, num_elements: int) -> int:
    """Returns two words for each element sent."""
    return 2 * count(self.ratio, num_elements)

  def encode_variable(
    self, values: tf.Tensor, draws: Callable[[], tf.Tensor]
  ) -> tf.Tensor:
    """Packs the indices and values of the largest elements."""
    # Layout: the indices within the variable, in rising order, then the values.
    indices, sent = self.find(values, count(self.ratio, values.shape[0]))
    return tf.concat([indices, tf.bitcast(sent, tf.int32)], axis=0)

  def elements(
    self, words: tf.Tensor, num_elements: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Unpacks the indices and values of one variable."""
    indices, values = tf.split(words, 2)
    indices = few_elements.mask_invalid(indices, num_elements)
    return indices, tf.bitcast(values, tf.float32)

  def check(
    self, words: np.ndarray, num_elements: int
  ) -> tuple[wire.Packing, np.ndarray, int] | None:
    """Rejects unsorted indices, and values that are not finite."""
    indices, values = np.split(words, 2)
    few_elements.check(
      self.name, indices, values.view(np.float32), num_elements
    )
    return None


class TopKOnKernels(few_elements.FewElementsOnBoth, TopK, twin_of=TopK):
  """The code with native kernels."""

  find = staticmethod(sparse_ops.largest)
  words_kind = sparse_ops.LISTS

  def kernels(self, sizes: Sequence[int]) -> sparse_ops.SparseCode:
    """Returns the parameters of the GPU kernels."""
    numbers = [count(self.ratio, size) for size in sizes]
    return sparse_ops.SparseCode(self.words_kind, numbers)


def check_ratio(name: str, ratio: float, option: str = 'ratio') -> None:
  """Raises ValueError unless a ratio of elements is in (0, 1]."""
  if not 0 < ratio <= 1:
    raise ValueError(
      f'{name}: expected {option} above 0 and at most 1, received {ratio}. Use '
      '0.01 to send about one element of a hundred.'
    )


def is_dense(ratio: float) -> bool:
  """Returns whether nearly every element is sent; see `contract.Traits`."""
  return ratio > 0.99


def count(ratio: float, num_elements: int) -> int:
  """Returns how many elements are sent: ratio times all, rounded up.

  The product is a float64, which may be just above a whole number.
  """
  return min(num_elements, max(1, math.ceil(ratio * num_elements)))


def largest(values: tf.Tensor, number: int, sorts: bool = False) -> tf.Tensor:
  """Finds the largest magnitudes; of equal ones the first.

  TensorFlow selects where XLA sorts: 20 ms instead of 500 ms for 10^6 elements.
  In a large gradient, a sample gives a threshold, and only the elements that
  reach it are searched; if these are too few, all elements are searched.

  Args:
    values: float32 [n].
    number: k <= n.
    sorts: True takes no sample. Compiled code sorts, and has no tensors whose
      sizes depend on values.

  Returns:
    int32 [k], the indices, the largest magnitude first.
  """
  # As integers, magnitudes compare alike on all devices, subnormals included.
  magnitudes = tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), MAGNITUDE)
  size = magnitudes.shape[0]

  def search_all() -> tf.Tensor:
    return tf.math.top_k(magnitudes, number).indices

  if sorts or size < _SAMPLED or number > size // 4:
    return search_all()
  sample = magnitudes[::_STRIDE]
  # The rank of the threshold in the sample: the expected number of the largest
  # elements that are in the sample, plus six standard deviations.
  rank = number / _STRIDE
  rank = min(math.ceil(rank + 6 * rank**0.5 + 1), sample.shape[0])
  least = tf.math.top_k(sample, rank).values[-1]
  candidates = tf.where(magnitudes >= least)[:, 0]

  def search_candidates() -> tf.Tensor:
    indices = tf.math.top_k(tf.gather(magnitudes, candidates), number).indices
    return tf.cast(tf.gather(candidates, indices), tf.int32)

  is_enough = tf.shape(candidates)[0] >= number
  return tf.cond(is_enough, search_candidates, search_all)


def largest_by_index(
  values: tf.Tensor, number: int, sorts: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
  """Finds the largest magnitudes, in rising order of their indices.

  Of equal magnitudes the first are taken.

  Args:
    values: float32 [n].
    number: k <= n.
    sorts: as for `largest`.

  Returns:
    int32 [k], the indices, and float32 [k], the elements.
  """
  indices = tf.sort(largest(values, number, sorts))
  return indices, tf.gather(values, indices)
