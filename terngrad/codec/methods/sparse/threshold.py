"""Elements that reach a threshold, up to the capacity of a payload.

Strom, Scalable Distributed DNN Training Using Commodity GPU Cloud Computing,
Interspeech 2015, for the threshold; Dutta et al., On the Discrepancy between
the Theoretical Analysis and Practical Implementations of Compressed
Communication, AAAI 2020, https://arxiv.org/abs/1911.08250, who send the values.
Departure: a payload has a capacity. If more elements reach the threshold, the
largest are sent; the others stay in the residual of error feedback.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods import by_variable
from terngrad.codec.methods import few_elements
from terngrad.codec.methods.sparse import topk
from terngrad.codec.stages import contract
from terngrad.codec.stages import wire
from terngrad.native import sparse_ops


class Threshold(few_elements.FewElements):
  """Sends elements whose magnitude reaches a threshold, 64 bits each.

  The payload has variable length. Use it with error feedback.
  """

  traits = by_variable.DETERMINISTIC._replace(preserves_scale=False)
  scope = contract.BUCKET

  def __init__(self, above: float = 0.001, capacity: float = 0.02) -> None:
    """Creates the code.

    Args:
      above: the threshold, >= 0, in the gradient's units.
      capacity: largest fraction of a bucket's elements that is sent, in (0, 1].

    Raises:
      ValueError: an option is out of its range.
    """
    topk.check_ratio('threshold', capacity, 'capacity')
    if not 0 <= above <= float(np.finfo(np.float32).max):
      raise ValueError(
        f'threshold: expected above to be finite and >= 0, received {above}. '
        "It is in the gradient's units. Use threshold:above=0.001."
      )
    self.stages = (_Pairs(above, capacity),)
    self.name = self.packing.name

  @property
  def packing(self) -> '_Pairs':
    """The packing, which is the only stage."""
    return cast(_Pairs, self.stages[-1])

  def choose(self, elements: tf.Tensor, number: int, above: float) -> tf.Tensor:
    """Encodes up to `number` elements that reach the threshold.

    Arguments and format are those of `sparse_ops.encode_threshold`.

    Returns:
      int32 [1 + 2 number].
    """
    return _encode(elements, number, above, self.sorts)

  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Encodes all variables of a bucket together; see `coded.Code`."""
    number = topk.count(self.packing.fraction, sum(sizes))
    return self.choose(method.flat(pieces), number, self.packing.above)

  def bucket_elements(
    self, words: tf.Tensor, sizes: Sequence[int]
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Unpacks the indices and values of a bucket."""
    return _elements(words, sum(sizes))


class _ThresholdOnKernels(
  few_elements.FewElementsOnBoth, Threshold, twin_of=Threshold
):
  choose = staticmethod(sparse_ops.encode_threshold)

  def kernels(self, sizes: Sequence[int]) -> sparse_ops.SparseCode:
    number = topk.count(self.packing.fraction, sum(sizes))
    above = self.packing.above
    return sparse_ops.SparseCode(sparse_ops.PAIRS, [number], above)


class _Pairs(wire.VariablePacking):
  """The number of elements, then pairs of index and value, in rising order."""

  elements_per_word = 1
  levels = None
  domain = (contract.FLOAT, contract.WORDS)
  traits = by_variable.DETERMINISTIC._replace(preserves_scale=False)

  def __init__(self, above: float, fraction: float) -> None:
    self.name = f'threshold({above:g}, {fraction:g})'
    self.above, self.fraction = above, fraction

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    (values,) = planes
    number = topk.count(self.fraction, values.shape[0])
    return _encode(values, number, self.above)

  def unpack(self, words: tf.Tensor, width: int) -> wire.Planes:
    return [few_elements.to_dense(*_elements(words, width), width)]

  def capacity(self, width: int) -> int:
    return 1 + 2 * topk.count(self.fraction, width)

  def used(self, first: tf.Tensor) -> tf.Tensor:
    return 1 + 2 * first

  def expected(self, num_elements: int) -> float:
    # The length depends on the gradient's values, so this is the upper bound.
    return self.capacity(num_elements)

  def check(self, words: np.ndarray, width: int) -> None:
    """Rejects a wrong number, bad or unsorted indices, and infinite values."""
    most, number = topk.count(self.fraction, width), int(words[0])
    if not 0 <= number <= most:
      raise ValueError(
        f'{self.name}: expected at most {most} elements, received {number}. '
        'The payload is damaged. Send it again.'
      )
    indices, values = words[1 : 1 + 2 * words[0]].reshape([-1, 2]).T
    values = np.ascontiguousarray(values).view(np.float32)
    few_elements.check(self.name, indices, values, width)


def _encode(
  values: tf.Tensor, number: int, above: float, sorts: bool = False
) -> tf.Tensor:
  """Computes `sparse_ops.encode_threshold` on any device."""
  indices, sent = topk.largest_by_index(values, number, sorts)
  bits = tf.bitcast(sent, tf.int32)
  # As integers, magnitudes compare alike on all devices. Zeros are not sent.
  least = max(int(np.float32(above).view(np.int32)), 1)
  chosen = tf.bitwise.bitwise_and(bits, topk.MAGNITUDE) >= least
  ranks = tf.cumsum(tf.cast(chosen, tf.int32)) - 1
  # Elements that are not sent go past the end.
  targets = tf.where(chosen, ranks, number)[:, tf.newaxis]
  pairs = tf.tensor_scatter_nd_update(
    tf.zeros([number + 1, 2], tf.int32), targets, tf.stack([indices, bits], 1)
  )
  total = tf.reduce_sum(tf.cast(chosen, tf.int32))
  return tf.concat([total[tf.newaxis], tf.reshape(pairs[:-1], [-1])], axis=0)


def _elements(
  words: tf.Tensor, num_elements: int
) -> tuple[tf.Tensor, tf.Tensor]:
  indices, values = tf.unstack(tf.reshape(words[1:], [-1, 2]), axis=1)
  used = tf.range(indices.shape[0]) < words[0]
  indices = few_elements.mask_invalid(indices, num_elements)
  return tf.where(used, indices, num_elements), tf.bitcast(values, tf.float32)
