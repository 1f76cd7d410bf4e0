"""Sparse ternary compression: few elements, one magnitude, short indices.

Sattler et al., Robust and Communication-Efficient Federated Learning from
Non-IID Data, 2019, https://arxiv.org/abs/1903.02891, algorithm 1: the largest
elements of each variable are sent as signs times their mean magnitude.
Departure: indices are not Golomb codes of the gaps but their Elias-Fano form
(Elias, Efficient Storage and Retrieval by Content and Address of Static Files,
Journal of the ACM 21 (2), 1974): the upper bits as unary differences, which is
what Golomb codes have, and the lower bits apart. For one element of a hundred
that takes 8.6 bits an index for 8.1, always the same number of words, and both
ways are a few operations on whole vectors.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import few_elements
from terngrad.codec.methods.sparse import elias_fano
from terngrad.codec.methods.sparse import topk
from terngrad.codec.stages import packing
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire
from terngrad.native import sparse_ops

_SIGNS = packing.unsigned(1)


class _Steps(NamedTuple):
  """What kernels do, or operations of any device."""

  find: Callable
  pack: Callable
  unpack: Callable


_PORTABLE = _Steps(topk.in_order, elias_fano.pack, elias_fano.unpack)
_KERNELS = _Steps(
  topk.in_order_by_kernel, sparse_ops.pack_indices, sparse_ops.unpack_indices
)


def stc(ratio=0.01):
  """The largest elements as plus or minus their mean magnitude.

  Args:
    ratio: see `topk.topk`; an element that is sent costs about
      log2(1 / ratio) + 3 bits.

  Returns:
    A `contract.Codec`, to be used with error feedback.

  Raises:
    ValueError: `ratio` is out of its range.
  """
  topk.check_ratio('stc', ratio)
  name = f'stc({ratio:g})'
  elements = functools.partial(_elements, ratio, _PORTABLE)
  words = wire.CompositePacking(
    name,
    num_words=functools.partial(_num_words, ratio),
    planes=few_elements.scattered(elements),
    check=functools.partial(_check, name, ratio),
  )
  encode = functools.partial(_encode, ratio)
  return by_variable.by_variable(
    words,
    functools.partial(encode, _PORTABLE),
    compiled=False,  # see `topk.largest`
    elements=elements,
    native=by_variable.native_elements(
      words,
      functools.partial(encode, _KERNELS),
      functools.partial(_elements, ratio, _KERNELS),
    ),
  )


def _num_words(ratio, num_elements):
  if not num_elements:
    return 0
  number = topk.count(ratio, num_elements)
  indices = elias_fano.num_words(number, num_elements)
  return 1 + _SIGNS.num_words(number) + indices


def _encode(ratio, does, values, draws):
  """The magnitude; the signs in the order of the indices; the indices."""
  del draws  # nothing is drawn
  size = values.shape[0]
  indices, sent = does.find(values, topk.count(ratio, size))
  magnitude = tf.bitcast(statistics.mean_magnitude(sent), tf.int32)
  negative = tf.cast(tf.bitcast(sent, tf.int32) < 0, tf.int32)
  return tf.concat(
    [
      magnitude[tf.newaxis],
      _SIGNS.pack_flat(negative),
      does.pack(indices, size),
    ],
    axis=0,
  )


def _elements(ratio, does, words, num_elements):
  number = topk.count(ratio, num_elements)
  end = 1 + _SIGNS.num_words(number)
  negative = _SIGNS.unpack_flat(words[1:end], number)
  magnitude = tf.bitcast(words[0], tf.float32)
  indices = does.unpack(words[end:], number, num_elements)
  values = tf.where(negative > 0, -magnitude, magnitude)
  return few_elements.inside(indices, num_elements), values


def _check(name, ratio, words, num_elements):
  """Refuses a magnitude that is none, and indices that are not in order."""
  number = topk.count(ratio, num_elements)
  end = 1 + _SIGNS.num_words(number)
  magnitude = words[:1].view(np.float32)[0]
  if not (np.isfinite(magnitude) and magnitude >= 0):
    raise ValueError(
      f'{name}: expected a finite magnitude >= 0, received {magnitude}. The '
      'payload was damaged or made by another codec: send it again.'
    )
  elias_fano.check(name, words[end:], number, num_elements)
  return _SIGNS, words[1:end], number
