"""Elements above a threshold, as many as there are, up to a capacity.

Strom, Scalable Distributed DNN Training Using Commodity GPU Cloud Computing,
Interspeech 2015, for the threshold; Dutta et al., On the Discrepancy between
the Theoretical Analysis and Practical Implementations of Compressed
Communication, AAAI 2020, https://arxiv.org/abs/1911.08250, who send the values.
Departure: a payload has room for a part of the elements, the largest of those
above; others wait in the residual of error feedback.
"""

import functools
import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import tensorflow as tf

from terngrad.codec import chain
from terngrad.codec import coded
from terngrad.codec import method
from terngrad.codec.methods import by_variable
from terngrad.codec.methods import few_elements
from terngrad.codec.methods.sparse import topk
from terngrad.codec.stages import chain as chains
from terngrad.codec.stages import contract
from terngrad.codec.stages import wire
from terngrad.native import ops
from terngrad.native import sparse_ops


def threshold(above: float = 0.001, capacity: float = 0.02) -> coded.Code:
  """Elements of magnitudes of at least `above`, 64 bits each.

  Args:
    above: the threshold, >= 0, in the gradient's units.
    capacity: the largest part of a bucket's elements that is sent, in (0, 1].

  Returns:
    A `coded.Code` of variable length, to be used with error feedback.

  Raises:
    ValueError: an option is out of its range.
  """
  topk.check_ratio('threshold', capacity)
  if not 0 <= above < math.inf:
    raise ValueError(
      f'threshold: expected above >= 0 and finite, received {above}. It is in '
      'the units of the gradient: try 0.001.'
    )
  return Threshold(_Pairs(above, capacity))


class Threshold(chain.Chain):
  """See `threshold`."""

  scope = contract.BUCKET
  compiled = False

  def __init__(self, packing: '_Pairs') -> None:
    """See `threshold`."""
    super().__init__((packing,))

  @property
  def packing(self) -> '_Pairs':
    """The only stage."""
    return cast(_Pairs, self.stages[-1])

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """See `coded.Code`: no tensor of all elements a worker."""
    size = sum(method.sizes_of(shapes))
    wire.check_length(self.packing, parts, size)
    elements = functools.partial(_elements, num_elements=size)
    sums = few_elements.sum_rows(parts, elements, size)
    return chains.gradients_of(None, sums, shared, shapes, scale)

  def twin(self) -> coded.Code | None:
    """See `coded.Code`."""
    if type(self) is not Threshold:
      return None
    made, packing = _OnKernels.of(self), self.packing
    made.stages = (_NativePairs(packing.above, packing.part),)
    return made


class _OnKernels(Threshold):
  probe = staticmethod(ops.norms)

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    del shared
    size = sum(method.sizes_of(shapes))
    wire.check_length(self.packing, parts, size)
    elements = functools.partial(_elements, num_elements=size)
    indices, values = few_elements.rows(parts, elements)
    return sparse_ops.add_elements(indices, values, shapes, scale)


class _Pairs(wire.VariablePacking):
  """How many; then for each its index and its value, in rising order."""

  elements_per_word = 1
  levels = None
  domain = (contract.FLOAT, contract.WORDS)
  traits = by_variable.FIXED

  def __init__(self, above: float, part: float) -> None:
    self.name = f'threshold({above:g}, {part:g})'
    self.above, self.part = above, part

  def choose(self, elements: tf.Tensor, number: int, above: float) -> tf.Tensor:
    return _encode(elements, number, above)

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    (values,) = planes
    number = topk.count(self.part, values.shape[0])
    return self.choose(values, number, self.above)

  def unpack(self, words: tf.Tensor, width: int) -> wire.Planes:
    return [few_elements.scattered(*_elements(words, width), width)]

  def capacity(self, width: int) -> int:
    return 1 + 2 * topk.count(self.part, width)

  def used(self, first: tf.Tensor) -> tf.Tensor:
    return 1 + 2 * first

  def expected(self, num_elements: int) -> float:
    # By the gradient, not by its size: as much as fits.
    return self.capacity(num_elements)

  def check(self, words: np.ndarray, width: int) -> None:
    """Refuses indices outside or in other orders, and what is not finite."""
    pairs = words[1 : 1 + 2 * words[0]].reshape([-1, 2])
    indices, values = pairs.T
    inside = np.all((indices >= 0) & (indices < width))
    if not inside or np.any(indices[1:] <= indices[:-1]):
      raise ValueError(
        f'{self.name}: expected indices below {width}, each once and in rising '
        'order, received others. The payload was damaged or made by another '
        'codec: send it again.'
      )
    if not np.isfinite(np.ascontiguousarray(values).view(np.float32)).all():
      raise ValueError(
        f'{self.name}: expected finite values, received others. The payload '
        'was damaged: send it again.'
      )


class _NativePairs(_Pairs):
  choose = staticmethod(sparse_ops.encode_threshold)


def _encode(values: tf.Tensor, number: int, above: float) -> tf.Tensor:
  """`sparse_ops.encode_threshold` on any device."""
  indices, sent = topk.in_order(values, number)
  bits = tf.bitcast(sent, tf.int32)
  # As integers magnitudes have one order everywhere. Zeros are not sent.
  least = max(int(np.float32(above).view(np.int32)), 1)
  chosen = tf.bitwise.bitwise_and(bits, topk.MAGNITUDE) >= least
  places = tf.cumsum(tf.cast(chosen, tf.int32)) - 1
  # Those that are not sent go past the end.
  where = tf.where(chosen, places, number)[:, tf.newaxis]
  pairs = tf.tensor_scatter_nd_update(
    tf.zeros([number + 1, 2], tf.int32), where, tf.stack([indices, bits], 1)
  )
  total = tf.reduce_sum(tf.cast(chosen, tf.int32))
  return tf.concat([total[tf.newaxis], tf.reshape(pairs[:-1], [-1])], axis=0)


def _elements(
  words: tf.Tensor, num_elements: int
) -> tuple[tf.Tensor, tf.Tensor]:
  indices, values = tf.unstack(tf.reshape(words[1:], [-1, 2]), axis=1)
  used = tf.range(indices.shape[0]) < words[0]
  indices = few_elements.inside(indices, num_elements)
  return tf.where(used, indices, num_elements), tf.bitcast(values, tf.float32)
