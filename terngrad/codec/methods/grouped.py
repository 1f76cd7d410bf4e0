"""Base classes of codes with a few scales for each group of elements.

A group consists of consecutive elements, which are sent as small integers.
"""

import abc
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods import by_variable
from terngrad.codec.methods import validation
from terngrad.codec.stages import division
from terngrad.codec.stages import ternary
from terngrad.codec.stages import wire
from terngrad.native import grouped_ops
from terngrad.native import ops

# Levels are fixed-point numbers with this many fraction bits: 255 levels fit in
# an int32.
FRACTION = 22
# Larger magnitudes are clipped to this, so that maximum - minimum is finite.
LARGEST = 2.0**126
# A bound on step / exact step - 1, because steps are rounded up.
STEP_ROUNDING = 2.0**-15
# A bound on (step / exact step)^2.
ROUNDED_UP = (1 + STEP_ROUNDING) ** 2
STEPS_MADE = 'steps of 16 significant bits, 0 or at least 2**-100'


class Grouped(by_variable.ByVariable):
  """A code of variables in groups, whose elements share a few scales.

  A variable's words are the first scales of all groups, the second scales and
  so on, and then the integers of all elements. A subclass defines
  `encode_groups` and `decode_groups`.

  Attributes:
    integers: `wire.Packing` of the integers.
    size: number of elements in a group; 0 for all elements of a variable.
    num_scales: number of scales of a group.
    signed: whether scales may be negative.
    scales_made: description of the scales that encoders make, for messages.
  """

  num_scales: int = 1
  signed: bool = False
  scales_made: str = 'finite scales'

  def __init__(self, name: str, integers: wire.Packing, size: int) -> None:
    """Creates the code; see the class for the arguments.

    Raises:
      ValueError: the size of a group is negative, or no int32.
    """
    if not 0 <= size <= tf.int32.max:
      raise ValueError(
        f'group_size: expected a number of elements, or 0 for whole '
        f'variables, at most {tf.int32.max}, received {size}. Use 512.'
      )
    self.name, self.integers, self.size = name, integers, size

  @abc.abstractmethod
  def encode_groups(
    self, rows: tf.Tensor, bits: tf.Tensor | None
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Computes the scales and the integers of groups.

    Args:
      rows: float32 [rows, n].
      bits: uint32 [rows, n], random; None for codes without randomness.

    Returns:
      (list of float32 [rows], the scales; int32 [rows, n]).
    """

  @abc.abstractmethod
  def decode_groups(
    self, scales: Sequence[tf.Tensor], codes: tf.Tensor
  ) -> tf.Tensor:
    """Decodes scales and integers to elements.

    A product that is added to something must be exact, because compilers may
    fuse the two and round once: see `limit_steps`.

    Args:
      scales: list of float32 [rows, 1].
      codes: int32 [rows, n].

    Returns:
      float32 [rows, n].
    """

  def as_encoded(self, scales: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Changes scales that no encoder makes to others.

    Args:
      scales: list of float32 [groups], finite.

    Returns:
      List of float32 [groups]: equal bits for scales that an encoder makes.
    """
    return scales

  def group_of(self, num_elements: int) -> int:
    """Returns the size of the largest group of a variable of this size."""
    return min(self.size or num_elements, num_elements)

  def num_words(self, num_elements: int) -> int:
    """Returns the number of words of the scales and the integers."""
    if not num_elements:
      return 0
    codes = self.integers.num_words(num_elements)
    return self._num_scales(num_elements) + codes

  def encode_variable(
    self, values: tf.Tensor, draws: Callable[[], tf.Tensor]
  ) -> tf.Tensor:
    """Packs the scales of all groups and the integers of all elements."""
    shapes = self._shapes(values.shape[0])
    bits = draws() if self.traits.randomness != 'none' else None
    parts = map(self.encode_groups, _cut(values, shapes), _cut(bits, shapes))
    scales, codes = zip(*parts, strict=True)
    kinds = zip(*scales, strict=True)
    scales = tf.concat([tf.concat(kind, axis=0) for kind in kinds], axis=0)
    codes = tf.concat([tf.reshape(code, [-1]) for code in codes], axis=0)
    words = self.integers.pack_flat(codes)
    return tf.concat([tf.bitcast(scales, tf.int32), words], axis=0)

  def planes(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """Decodes a variable's words to float32 [n]."""
    shapes = self._shapes(num_elements)
    count = self._num_scales(num_elements)
    scales = tf.split(tf.bitcast(words[:count], tf.float32), self.num_scales)
    counts = [rows for rows, _ in shapes]
    scales = [
      [s[:, tf.newaxis] for s in tf.split(kind, counts)] for kind in scales
    ]
    codes = self.integers.unpack_flat(words[count:], num_elements)
    decoded = [
      self.decode_groups(scale, code)
      for *scale, code in zip(*scales, _cut(codes, shapes), strict=True)
    ]
    return tf.concat([tf.reshape(rows, [-1]) for rows in decoded], axis=0)

  def check(
    self, words: np.ndarray, num_elements: int
  ) -> tuple[wire.Packing, np.ndarray, int]:
    """Rejects scales that no encoder makes; returns the integers."""
    count = self._num_scales(num_elements)
    scales = words[:count].view(np.float32)
    expected = 'finite scales' if self.signed else 'finite scales >= 0'
    validation.check_scales(self.name, scales, expected, self.signed)
    kinds = tf.split(tf.constant(scales), self.num_scales)
    encoded = tf.concat(self.as_encoded(kinds), axis=0).numpy()
    wrong = scales[encoded.view(np.int32) != words[:count]]
    if wrong.size:
      raise ValueError(
        f'{self.name}: expected {self.scales_made}, received the bits '
        f'{wrong.view(np.uint32)[0]:#010x}. Send the payload again.'
      )
    return self.integers, words[count:], num_elements

  def _shapes(self, num_elements: int) -> list[tuple[int, int]]:
    """Returns (rows, elements of a row) of whole groups and of the rest."""
    size = self.group_of(num_elements)
    rest = num_elements % size
    return [(num_elements // size, size)] + [(1, rest)] * bool(rest)

  def _num_scales(self, num_elements: int) -> int:
    return self.num_scales * sum(rows for rows, _ in self._shapes(num_elements))


class GroupedOnKernels(by_variable.ByVariable):
  """A code of variables with native kernels: the first base of a twin class.

  Attributes:
    kernels: parameters of the kernels, set by the code without kernels.
  """

  compiled = False
  _uses_gpus: bool | None = False
  kernels: grouped_ops.GroupedCode

  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the norms, float32 [v]."""
    return ops.norms(gradients, bool(self._uses_gpus))

  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Encodes all variables with one kernel; see `coded.Code`."""
    num_words = self.words_of(sizes)
    return grouped_ops.encode(
      pieces, sizes, key, num_words, self.kernels, bool(self._uses_gpus)
    )

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """Decodes and adds the payloads with one kernel; see `coded.Code`."""
    return grouped_ops.decode_sum(
      parts, shapes, scale, self.kernels, bool(self._uses_gpus)
    )


def with_nan(rows: tf.Tensor) -> tf.Tensor:
  """Checks which groups have NaN; minima and maxima of XLA ignore it on CPUs.

  Args:
    rows: float32 [rows, n].

  Returns:
    bool [rows].
  """
  return tf.reduce_any(tf.math.is_nan(rows), axis=1)


def step(span: tf.Tensor, levels: int) -> tf.Tensor:
  """Computes the step between levels; its products with levels are exact.

  Args:
    span: float32, any shape, >= 0: the magnitude that the last level must
      reach, at most 2**127.
    levels: integer from 1 to 255.

  Returns:
    float32, shape of `span`, of 16 significant bits, rounded up: levels times
    this reach the span. 0 where it would be less than 2**-100.
  """
  bits = tf.bitcast(span * (1.0 / levels), tf.int32)
  bits = tf.bitwise.bitwise_and(bits + 0xFF, ~0xFF)
  coarse = tf.bitcast(bits, tf.float32)
  # The product above was rounded, this one is exact.
  short = coarse * float(levels) < span
  coarse = tf.where(short, tf.bitcast(bits + 0x100, tf.float32), coarse)
  return tf.where(coarse >= ternary.MIN_SCALER, coarse, 0.0)


def limit_steps(words: tf.Tensor, levels: int) -> tf.Tensor:
  """Reads steps from words and limits them to those that `step` makes.

  For any words, products with levels are then exact and finite, so that all
  devices decode the same bits.

  Args:
    words: float32, any shape.
    levels: integer from 1 to 255.

  Returns:
    float32, shape of `words`. Steps that `step` makes are unchanged.
  """
  span = np.float32(2.0 * LARGEST / levels)
  largest = ((int(span.view(np.int32)) + 0xFF) & ~0xFF) + 0x100
  bits = tf.bitwise.bitwise_and(tf.bitcast(words, tf.int32), 0x7FFFFF00)
  steps = tf.bitcast(tf.minimum(bits, largest), tf.float32)
  return tf.where(steps >= ternary.MIN_SCALER, steps, 0.0)


def round_to_levels(
  values: tf.Tensor, steps: tf.Tensor, levels: int, bits: tf.Tensor
) -> tf.Tensor:
  """Rounds at random to one of the two nearest levels, without bias.

  Args:
    values: float32 [rows, n], from 0 to `levels` steps.
    steps: float32 [rows], from `step`.
    levels: integer from 1 to 255.
    bits: uint32 [rows, n], random.

  Returns:
    int32 [rows, n], from 0 to levels. Their expectation is exact up to
    levels * 2**-24 + 2**-23. 0 for NaN and where a step is 0.
  """
  inverse = division.divide_power_of_two(FRACTION, steps)
  # Integers from here on, because compilers round sums of products differently.
  fixed = tf.cast(tf.round(values * inverse[:, tf.newaxis]), tf.int32)
  # In a group with NaN the step is 0. Devices convert NaN to 0 or -2**31.
  fixed = tf.maximum(tf.minimum(fixed, levels << FRACTION), 0)
  draw = tf.bitwise.right_shift(bits, tf.constant(32 - FRACTION, tf.uint32))
  return tf.bitwise.right_shift(fixed + tf.bitcast(draw, tf.int32), FRACTION)


def _cut(
  values: tf.Tensor | None, shapes: Sequence[tuple[int, int]]
) -> list[tf.Tensor | None]:
  """Cuts a variable into a list of [rows, n]; None gives a list of None."""
  if values is None:
    return [None] * len(shapes)
  parts = tf.split(values, [rows * size for rows, size in shapes])
  return [tf.reshape(p, shape) for p, shape in zip(parts, shapes, strict=True)]
