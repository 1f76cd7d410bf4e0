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

import numpy as np
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods import few_elements
from terngrad.codec.methods.sparse import topk
from terngrad.codec.stages import chain
from terngrad.codec.stages import contract
from terngrad.codec.stages import wire
from terngrad.native import ops
from terngrad.native import sparse_ops


def threshold(above=0.001, capacity=0.02):
  """Elements of magnitudes of at least `above`, 64 bits each.

  Args:
    above: the threshold, >= 0, in the gradient's units.
    capacity: the largest part of a bucket's elements that is sent, in (0, 1].

  Returns:
    A `contract.Codec` of variable length, to be used with error feedback.

  Raises:
    ValueError: an option is out of its range.
  """
  topk.check_ratio('threshold', capacity)
  if not 0 <= above < math.inf:
    raise ValueError(
      f'threshold: expected above >= 0 and finite, received {above}. It is in '
      'the units of the gradient: try 0.001.'
    )
  codec = _codec(_encode, above, capacity)
  by_kernels = _codec(sparse_ops.encode_threshold, above, capacity)
  by_kernels = by_kernels._replace(
    probe=ops.norms, decode_sum=functools.partial(_add_rows, codec.packing)
  )
  return codec._replace(native=lambda: by_kernels)


def _codec(encode, above, capacity):
  name = f'threshold({above:g}, {capacity:g})'
  packing = wire.VariablePacking(
    name,
    elements_per_word=1,
    pack=functools.partial(_pack, encode, above, capacity),
    unpack=_unpack,
    capacity=lambda width: 1 + 2 * topk.count(capacity, width),
    used=_used,
    # By the gradient, not by its size: as much as fits.
    expected=lambda size: 1 + 2 * topk.count(capacity, size),
    check=functools.partial(_check, name),
    levels=None,
    domain=(contract.FLOAT, contract.WORDS),
    traits=contract.Traits(
      unbiased=False, lossless=False, additive=False, randomness='none'
    ),
  )
  return chain.chain(packing)._replace(
    decode_sum=functools.partial(_sum_rows, packing),
    scope=contract.BUCKET,
    compiled=False,
  )


def _sum_rows(packing, parts, shared, shapes, scale=1.0):
  """`contract.Codec.decode_sum`: no tensor of all elements a worker."""
  size = sum(method.sizes_of(shapes))
  wire.check_length(packing, parts, size)
  elements = functools.partial(_elements, num_elements=size)
  sums = few_elements.sum_rows(parts, elements, size)
  return chain.gradients_of(None, sums, shared, shapes, scale)


def _add_rows(packing, parts, shared, shapes, scale=1.0):
  """The same by a kernel."""
  del shared
  size = sum(method.sizes_of(shapes))
  wire.check_length(packing, parts, size)
  elements = functools.partial(_elements, num_elements=size)
  indices, values = few_elements.rows(parts, elements)
  return sparse_ops.add_elements(indices, values, shapes, scale)


def _unpack(words, width):
  return [few_elements.scattered(_elements)(words, width)]


def _used(first):
  return 1 + 2 * first


def _pack(encode, above, capacity, planes):
  """How many; then for each its index and its value, in rising order."""
  (values,) = planes
  return encode(values, topk.count(capacity, values.shape[0]), above)


def _encode(values, number, above):
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


def _elements(words, num_elements):
  indices, values = tf.unstack(tf.reshape(words[1:], [-1, 2]), axis=1)
  used = tf.range(indices.shape[0]) < words[0]
  indices = few_elements.inside(indices, num_elements)
  return tf.where(used, indices, num_elements), tf.bitcast(values, tf.float32)


def _check(name, words, width):
  """Refuses indices outside or in other orders, and what is not finite."""
  pairs = words[1 : 1 + 2 * words[0]].reshape([-1, 2])
  indices, values = pairs.T
  inside = np.all((indices >= 0) & (indices < width))
  if not inside or np.any(indices[1:] <= indices[:-1]):
    raise ValueError(
      f'{name}: expected indices below {width}, each once and in rising order, '
      'received others. The payload was damaged or made by another codec: send '
      'it again.'
    )
  if not np.isfinite(np.ascontiguousarray(values).view(np.float32)).all():
    raise ValueError(
      f'{name}: expected finite values, received others. The payload was '
      'damaged: send it again.'
    )
