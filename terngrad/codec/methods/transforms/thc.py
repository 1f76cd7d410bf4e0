"""THC: codes of rotated gradients that can be added before decoding.

Li et al., THC: Accelerating Distributed Deep Learning Using Tensor Homomorphic
Compression, NSDI 2024, https://arxiv.org/abs/2302.08545: workers agree on the
norms, rotate with the same key, and round at random to entries of one table of
16 integers, which any device can look up and add. Departures: each block of
4096 elements has a separate norm; the table is computed here, for elements
clipped at three standard deviations (`span`), not read from the paper; and sums
of N workers are sent as integers of the width that they need.
"""

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad import native
from terngrad.codec import method
from terngrad.codec import wrapper
from terngrad.codec.methods.transforms import rotation
from terngrad.codec.methods.transforms import thc_kernels
from terngrad.codec.stages import contract
from terngrad.codec.stages import division
from terngrad.codec.stages import packing
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire
from terngrad.native import gpu

# Entries are integers from -_GRID to _GRID: the paper's granularity of 30.
_GRID = 15
_BITS = 4
_FRACTION = 16


@functools.cache
def table(span: float = 3.0) -> np.ndarray:
  """Returns the int [16] entries of least squared error for normal numbers.

  Searches all rising tables from -15 to 15 by dynamic programming; 15 is `span`
  standard deviations. A number x between the entries a and b is rounded at
  random; its mean squared error is (x - a)(b - x).
  """
  x = np.linspace(-span, span, 6001)
  weight = np.exp(-(x**2) / 2)
  x = x * (_GRID / span)
  points = np.arange(-_GRID, _GRID + 1)
  count = len(points)
  loss = np.full([count, count], np.inf)
  for i, j in itertools.combinations(range(count), 2):
    between = (x >= points[i]) & (x <= points[j])
    part = (x - points[i]) * (points[j] - x) * weight
    loss[i, j] = part[between].sum()
  best, steps = loss[0], []
  for _ in range(2**_BITS - 2):
    through = best[:, np.newaxis] + loss
    steps.append(through.argmin(axis=0))
    best = through.min(axis=0)
  index, found = count - 1, [count - 1]
  for step in reversed(steps):
    index = step[index]
    found.append(index)
  return points[[*reversed([*found, 0])]]


@functools.cache
def entries(span: float) -> wire.Packing:
  """Returns the `wire.Packing` of table entries, 8 per word."""
  return _Entries(span)


class _Entries(packing.Unsigned):
  def __init__(self, span: float) -> None:
    super().__init__(_BITS)
    self.name, self.levels = f'thc_entries({span:g})', _GRID
    self._values = table(span).astype(np.int32)
    # Padding unpacks to this, unless 0 is an entry.
    self.fill = int(self._values[0])
    # The index of each entry.
    self._numbers = np.zeros(2 * _GRID + 1, np.int32)
    self._numbers[self._values + _GRID] = np.arange(2**_BITS)

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    numbers = tf.constant(self._numbers)
    return super().pack([tf.gather(numbers, plane + _GRID) for plane in planes])

  def unpack(self, words: tf.Tensor) -> tf.Tensor:
    return tf.gather(tf.constant(self._values), super().unpack(words))


class Thc(method.Method):
  """Sends 4 bits per element, and receives sums of integers up to 15 N.

  Blocks whose root mean square is below 2**-97 (6.3e-30) may count as zeros.
  Error feedback recovers what is clipped.
  """

  traits = contract.Traits(
    unbiased=False,
    lossless=False,
    additive=True,
    randomness='private',
    dense=True,
  )
  scope = contract.VARIABLE
  estimates = True
  draws_in_decode = True

  def __init__(self, span: float = 3.0) -> None:
    """Creates the method.

    Args:
      span: value of the largest entry, in units of a rotated block's root mean
        square, which is its agreed norm. Larger magnitudes are clipped.

    Raises:
      ValueError: `span` is not from 0.5 to 15. With more, entry 1 would be
        larger than the norm, and could be infinite.
    """
    if not 0.5 <= span <= _GRID:
      raise ValueError(
        f'thc: expected a span from 0.5 to {_GRID}, received {span}. Use 3.'
      )
    self.name, self.span = f'thc({span:g})', span

  def num_probes(self, num_elements: int) -> int:
    """Returns one norm for each block, and one for an empty variable."""
    return rotation.blocks(num_elements)[0] if num_elements else 1

  def on_kernels(self) -> method.Method:
    """Returns the method with native kernels, if they are built.

    Without them, XLA compiles each function separately, as it does beside
    kernels. Fused with the functions of a wrapper, they round differently.
    """
    if type(self) is not Thc or not native.available():
      return wrapper.SelfCompiled(self)
    return thc_kernels.ThcOnKernels(self, table(self.span))

  def on_gpus(self) -> method.Method:
    """Returns the method with GPU kernels, if they can be used here."""
    if type(self) is not Thc or not gpu.available():
      return self
    return thc_kernels.ThcOnKernels(self, table(self.span), on_gpus=True)

  def messages(self, shapes: method.Shapes) -> method.Rounds:
    """Declares one round with a sum of table entries."""
    padded = [_padded(n) for n in method.sizes_of(shapes)]
    return ((method.code_sum(entries(self.span), sum(padded), _GRID),),)

  def begin(
    self,
    gradients: method.Tensors,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[method.Tensors, tf.Tensor]:
    """Returns the gradients unchanged, and the norms of the blocks."""
    return gradients, tf.concat(
      [_norms(values) for values in method.each(gradients, context)], axis=0
    )

  def send(
    self,
    number: int,
    gradients: method.Tensors,
    states: method.Tensors,
    received: method.ReceivedRounds,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Rotates variables and rounds elements at random to table entries."""
    each, norms = method.each(gradients, context), self.split_norms(context)
    codes = []
    for values, norm, start in zip(each, norms, context.starts, strict=True):
      size = values.shape[0]
      if size:
        factors, inverses = self.scales(norm)
        factors = tf.repeat(factors, rotation.blocks(size)[1])[:size]
        key = random_bits.advance_key(context.common_key, start)
        rows = rotation.rotate(values * factors, key)
        draws = random_bits.fold_in(context.worker_key[:2], tf.constant(start))
        codes.append(self.rounded(rows, inverses, draws))
    codes = tf.concat(codes, axis=0) if codes else tf.zeros([0], tf.int32)
    return [entries(self.span).pack_flat(codes)], states

  def scales(self, norms: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the factors of elements before and after the rotation.

    Args:
      norms: float32 [blocks].

    Returns:
      Pair of float32 [blocks]: the factors before the rotation, powers of 2, so
      that products are exact and rotated sums finite; and those after it, to
      units of 2**-16 of table entries.
    """
    powers = rotation.power_of_two(norms)
    inverses = division.divide_power_of_two(0, powers)
    unit = self.units(norms * inverses)
    return inverses, division.divide_power_of_two(_FRACTION, unit)

  def decoding_factors(
    self, norms: tf.Tensor, size: int, scale: float
  ) -> tf.Tensor:
    """Computes the factors of rotated sums of entries, float32 [blocks]."""
    return self.units(norms) * (scale / rotation.blocks(size)[1])

  def rounded(
    self, rows: tf.Tensor, inverses: tf.Tensor, key: tf.Tensor
  ) -> tf.Tensor:
    """Rounds rotated rows at random to adjacent entries, int32 [elements]."""
    limit = _GRID << _FRACTION
    fixed = tf.round(rows * inverses[:, tf.newaxis])
    fixed = tf.cast(tf.clip_by_value(fixed, -limit, limit), tf.int32)
    values = table(self.span)
    next_entry = np.searchsorted(values, np.arange(-_GRID, _GRID), side='right')
    low, high = values[next_entry - 1], values[next_entry]
    fixed = tf.reshape(fixed, [-1])
    cell = tf.bitwise.right_shift(fixed, _FRACTION) + _GRID
    # The norms show values that are not finite; here any entry will do.
    cell = tf.clip_by_value(cell, 0, 2 * _GRID - 1)
    below = tf.gather(tf.constant(low, tf.int32), cell)
    width = tf.gather(tf.constant(high - low, tf.int32), cell)
    bits = random_bits.range_bits(key, rows.shape.num_elements())
    draw = tf.bitcast(tf.bitwise.right_shift(bits, 32 - _FRACTION), tf.int32)
    above = fixed - below * 2**_FRACTION
    return below + tf.where(draw * width < above, width, 0)

  def units(self, norms: tf.Tensor) -> tf.Tensor:
    """Returns the value of entry 1 for each norm, float32 [blocks]."""
    # The rotation is a matrix of 1 and -1, so the norm of a block is the root
    # mean square of the rotated block.
    unit = norms * (self.span / _GRID)
    return tf.where(unit >= 2.0**-100, unit, 0.0)

  def decode(
    self,
    received: method.ReceivedRounds,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Decodes the sums of entries to means."""
    sums = received[0][0].sum(self.messages(context.shapes)[0][0])
    means = self.decoded(sums, context, context.scale)
    return method.shaped(means, context), states

  def estimate(
    self, words: Sequence[tf.Tensor], context: method.Context
  ) -> list[tf.Tensor]:
    """Decodes the entries that this worker sent."""
    message = self.messages(context.shapes)[0][0]
    sums = entries(self.span).unpack_flat(words[0], message.num_elements)
    return self.decoded(sums, context, 1.0)

  def decoded(
    self, sums: tf.Tensor, context: method.Context, scale: float
  ) -> list[tf.Tensor]:
    """Decodes sums of entries to a list of float32 [n]."""
    found = []
    norms = self.split_norms(context)
    firsts = method.starts_of(list(map(_padded, context.sizes)))
    for size, norm, first, start in zip(
      context.sizes, norms, firsts, context.starts, strict=True
    ):
      if not size:
        found.append(tf.zeros([0]))
        continue
      count, block = rotation.blocks(size)
      rows = tf.reshape(sums[first : first + count * block], [count, block])
      rows = rotation.hadamard(tf.cast(rows, tf.float32))
      # After all additions, because compilers could fuse a product with a sum.
      rows *= self.decoding_factors(norm, size, scale)[:, tf.newaxis]
      key = random_bits.advance_key(context.common_key, start)
      signs = rotation.signs(key, count * block)
      found.append((tf.reshape(rows, [-1]) * signs)[:size])
    return found

  def split_norms(self, context: method.Context) -> list[tf.Tensor]:
    """Splits the agreed norms by variable, list of float32 [blocks]."""
    return tf.split(
      context.shared_probe, list(map(self.num_probes, context.sizes))
    )


def _padded(size: int) -> int:
  count, block = rotation.blocks(size) if size else (0, 0)
  return count * block


def _norms(values: tf.Tensor) -> tf.Tensor:
  """Returns the norms of a variable's blocks, float32 [blocks] or [0.0]."""
  size = values.shape[0]
  if not size:
    return tf.zeros([1])
  count, block = rotation.blocks(size)
  padded = tf.pad(values, [[0, count * block - size]])
  return statistics.norms_of_rows(tf.reshape(padded, [count, block]))
