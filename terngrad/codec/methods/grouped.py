"""Codes of groups of consecutive elements: a few scales, and small integers."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.stages import ternary
from terngrad.codec.stages import wire
from terngrad.native import grouped_ops

# Parts of a level have this many bits, so that 255 levels fit in an int32.
FRACTION = 22
# Larger magnitudes count as this, so that a span of values is finite.
LARGEST = 2.0**126


class Group(NamedTuple):
  """How the elements of a group become scales and integers.

  Attributes:
    name: for labels.
    packing: `wire.Packing` of the integers.
    encode: takes (float32 [rows, n], uint32 [rows, n] random bits or None),
      returns (list of float32 [rows], the scales; int32 [rows, n]).
    decode: takes (list of float32 [rows, 1], int32 [rows, n]), returns float32
      [rows, n]. A product that is added to something must be exact, since
      compilers round the two together where they like: see `known_step`.
    size: elements of a group; 0 for all of a variable.
    num_scales: of a group.
    signed: whether scales may be negative.
    native: `grouped_ops.Code`, the same for kernels; None where there are none.
  """

  name: str
  packing: wire.Packing
  encode: Callable
  decode: Callable
  size: int
  num_scales: int = 1
  signed: bool = False
  native: grouped_ops.Code | None = None


def grouped(group, traits):
  """The `contract.Codec` of variables that are coded in groups.

  A variable's payload is its groups' first scales, their second ones and so
  on, and then the integers of all elements.

  Args:
    group: `Group`.
    traits: see `contract.Traits`.

  Raises:
    ValueError: the size of a group is negative.
  """
  if group.size < 0:
    raise ValueError(
      f'group_size: expected elements, or 0 for whole variables, received '
      f'{group.size}. Use 512.'
    )
  words = wire.CompositePacking(
    group.name,
    num_words=functools.partial(_num_words, group),
    planes=functools.partial(_planes, group),
    check=functools.partial(_check, group),
  )
  drawn = traits.randomness != 'none'
  encode = functools.partial(_encode, group, drawn)
  native = group.native and on_kernels(words, group.native)
  return by_variable.by_variable(words, encode, traits, native=native)


def on_kernels(words, code):
  """The `by_variable.Native` of a code of groups.

  Args:
    words: `wire.CompositePacking`.
    code: `grouped_ops.Code`.
  """

  def encode_pieces(pieces, sizes, own, shared, key):
    del own, shared  # each variable is coded alone
    num_words = sum(map(words.num_words, sizes))
    return grouped_ops.encode(pieces, sizes, key, num_words, code)

  def decode_sum(parts, shared, shapes, scale=1.0):
    del shared
    return grouped_ops.decode_sum(parts, shapes, scale, code)

  return by_variable.Native(encode_pieces, decode_sum)


def step(span, levels):
  """What a level stands for, so that products with levels are exact.

  Args:
    span: float32, any shape, >= 0: what the levels must reach, at most 2**127.
    levels: integer from 1 to 255.

  Returns:
    float32 of that shape, of 16 significant bits, rounded up: levels times this
    reach the span. 0 where it would be less than 2**-100.
  """
  bits = tf.bitcast(span * (1.0 / levels), tf.int32)
  bits = tf.bitwise.bitwise_and(bits + 0xFF, ~0xFF)
  coarse = tf.bitcast(bits, tf.float32)
  # The product above was rounded, this one is exact.
  short = coarse * float(levels) < span
  coarse = tf.where(short, tf.bitcast(bits + 0x100, tf.float32), coarse)
  return tf.where(coarse >= ternary.MIN_SCALER, coarse, 0.0)


def known_step(words, levels):
  """Steps as `step` makes them, of what a payload has in their place.

  Whatever the words, products with levels are then exact and finite, so that
  all that decode them get the same bits.

  Args:
    words: float32, any shape.
    levels: see `step`.

  Returns:
    float32 of that shape: what `step` makes is returned as it is.
  """
  span = np.float32(2.0 * LARGEST / levels)
  most = ((int(span.view(np.int32)) + 0xFF) & ~0xFF) + 0x100
  bits = tf.bitwise.bitwise_and(tf.bitcast(words, tf.int32), 0x7FFFFF00)
  steps = tf.bitcast(tf.minimum(bits, most), tf.float32)
  return tf.where(steps >= ternary.MIN_SCALER, steps, 0.0)


def round_to_levels(values, steps, levels, bits):
  """Rounds at random to one of the two nearest levels, without bias.

  Args:
    values: float32 [rows, n], from 0 to `levels` steps.
    steps: float32 [rows], from `step`.
    levels: integer from 1 to 255.
    bits: uint32 [rows, n], random.

  Returns:
    int32 [rows, n], from 0 to levels, whose means are right to levels * 2**-24
    + 2**-23.
  """
  inverse = tf.where(steps > 0.0, 2.0**FRACTION / steps, 0.0)
  # Integers from here on: sums of products would be rounded in many ways.
  fixed = tf.cast(tf.round(values * inverse[:, tf.newaxis]), tf.int32)
  fixed = tf.minimum(fixed, levels << FRACTION)
  draw = tf.bitwise.right_shift(bits, tf.constant(32 - FRACTION, tf.uint32))
  return tf.bitwise.right_shift(fixed + tf.bitcast(draw, tf.int32), FRACTION)


def _shapes(group, num_elements):
  """(rows, elements of each) of the whole groups and of the one that is not."""
  size = min(group.size or num_elements, num_elements)
  rest = num_elements % size
  return [(num_elements // size, size)] + [(1, rest)] * bool(rest)


def _num_scales(group, num_elements):
  return group.num_scales * sum(g for g, _ in _shapes(group, num_elements))


def _num_words(group, num_elements):
  if not num_elements:
    return 0
  codes = group.packing.num_words(num_elements)
  return _num_scales(group, num_elements) + codes


def _encode(group, drawn, values, draws):
  shapes = _shapes(group, values.shape[0])
  bits = draws() if drawn else None
  scales, codes = [], []
  for rows, draw in zip(_cut(values, shapes), _cut(bits, shapes), strict=True):
    scale, code = group.encode(rows, draw)
    scales.append(scale)
    codes.append(tf.reshape(code, [-1]))
  kinds = zip(*scales, strict=True)
  scales = tf.concat([tf.concat(kind, axis=0) for kind in kinds], axis=0)
  words = group.packing.pack_flat(tf.concat(codes, axis=0))
  return tf.concat([tf.bitcast(scales, tf.int32), words], axis=0)


def _cut(values, shapes):
  """A variable's elements as list of [rows, n]; None for each None."""
  if values is None:
    return [None] * len(shapes)
  parts = tf.split(values, [rows * size for rows, size in shapes])
  return [tf.reshape(p, shape) for p, shape in zip(parts, shapes, strict=True)]


def _planes(group, words, num_elements):
  shapes = _shapes(group, num_elements)
  count = _num_scales(group, num_elements)
  scales = tf.split(tf.bitcast(words[:count], tf.float32), group.num_scales)
  counts = [rows for rows, _ in shapes]
  scales = [
    [s[:, tf.newaxis] for s in tf.split(kind, counts)] for kind in scales
  ]
  codes = group.packing.unpack_flat(words[count:], num_elements)
  decoded = [
    group.decode(scale, code)
    for *scale, code in zip(*scales, _cut(codes, shapes), strict=True)
  ]
  return tf.concat([tf.reshape(rows, [-1]) for rows in decoded], axis=0)


def _check(group, words, num_elements):
  """Refuses scales that no encoder makes."""
  count = _num_scales(group, num_elements)
  scales = words[:count].view(np.float32)
  bad = scales[~(np.isfinite(scales) & (group.signed | (scales >= 0)))]
  if bad.size:
    raise ValueError(
      f'{group.name}: expected finite scales{"" if group.signed else " >= 0"}, '
      f'received {bad[0]}. The payload was damaged or made by another codec: '
      'send it again.'
    )
  return group.packing, words[count:], num_elements
