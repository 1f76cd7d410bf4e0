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
  codec = _codec(topk.largest_elements, above, capacity)
  by_kernels = _codec(sparse_ops.largest, above, capacity)
  by_kernels = by_kernels._replace(probe=ops.norms)
  return codec._replace(native=lambda: by_kernels)


def _codec(find, above, capacity):
  name = f'threshold({above:g}, {capacity:g})'
  packing = wire.VariablePacking(
    name,
    elements_per_word=1,
    pack=functools.partial(_pack, find, above, capacity),
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
  return chain.chain(packing)._replace(scope=contract.BUCKET, compiled=False)


def _used(first):
  return 1 + 2 * first


def _pack(find, above, capacity, planes):
  """How many; then for each its index and its value, the largest first."""
  (values,) = planes
  number = topk.count(capacity, values.shape[0])
  indices, sent = find(values, number)
  chosen = (tf.abs(sent) >= above) & (sent != 0.0)
  pairs = tf.stack([indices, tf.bitcast(sent, tf.int32)], axis=1)
  pairs = tf.where(chosen[:, tf.newaxis], pairs, 0)
  total = tf.reduce_sum(tf.cast(chosen, tf.int32))
  return tf.concat([total[tf.newaxis], tf.reshape(pairs, [-1])], axis=0)


def _unpack(words, width):
  indices, values = tf.unstack(tf.reshape(words[1:], [-1, 2]), axis=1)
  used = tf.range(indices.shape[0]) < words[0]
  usable = used & (indices >= 0) & (indices < width)
  indices = tf.where(usable, indices, width)[:, tf.newaxis]
  bits = tf.zeros([width + 1], tf.int32)
  bits = tf.tensor_scatter_nd_update(bits, indices, values)
  return [tf.bitcast(bits[:width], tf.float32)]


def _check(name, words, width):
  """Refuses indices outside or twice, other orders, and what is not finite."""
  pairs = words[1 : 1 + 2 * words[0]].reshape([-1, 2])
  indices, values = pairs.T
  magnitudes = np.abs(np.ascontiguousarray(values).view(np.float32))
  falling = np.all(magnitudes[1:] <= magnitudes[:-1])
  inside = np.all((indices >= 0) & (indices < width))
  if not (inside and falling) or len({*indices}) < len(indices):
    raise ValueError(
      f'{name}: expected indices below {width}, each once and the largest '
      'magnitude first, received others. The payload was damaged or made by '
      'another codec: send it again.'
    )
  if not np.isfinite(magnitudes).all():
    raise ValueError(
      f'{name}: expected finite values, received others. The payload was '
      'damaged: send it again.'
    )
