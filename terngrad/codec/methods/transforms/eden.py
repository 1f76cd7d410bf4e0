"""EDEN and DRIVE: a random rotation, then a few quantization levels.

A rotation makes the elements of any gradient nearly Gaussian. The best three
levels for Gaussian elements are known. Their squared error is 0.19 of the
gradient's square; that of TernGrad's codes is 1.0 at the same number of bits. A
scale for each rotated block makes the estimate's component along the gradient
equal to the gradient. This raises the error to 0.234 and removes the bias in
the mean over all rotations. The rotations used here, signs and a Hadamard
matrix, come close to that mean.

A payload consists of the rotation's key, two words; the scales of the blocks,
one word each; and the codes, for three levels 20 per word, as `packing.base3`
packs them.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec import coded
from terngrad.codec import method
from terngrad.codec.methods import validation
from terngrad.codec.methods.transforms import lloyd_max
from terngrad.codec.methods.transforms import rotation
from terngrad.codec.stages import chain
from terngrad.codec.stages import contract
from terngrad.codec.stages import division
from terngrad.codec.stages import statistics
from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.codec.stages import wire
from terngrad.native import ops
from terngrad.native import rotated_ops

_KEY_WORDS = 2


def eden3() -> coded.Code:
  """Rotation, three levels and a scale for each block of 4096 elements.

  Variables are first divided by their agreed root mean square, rounded to a
  power of two, so that all variables in a block have a similar size. The
  workers agree on nothing else: each draws its rotation and computes its
  scales, so that the workers' errors are independent. Decoding rotates every
  payload back.

  Not suitable for blocks in which a few elements hold nearly the whole square,
  such as buckets of a few elements: there are few sign patterns then, and the
  rotated elements are far from Gaussian. With two such elements the square of
  the bias is up to 0.24 of the gradient's square; with 10 normally distributed
  ones about 0.01, and with 100 below 0.001. Where that matters, keep such
  variables in float32.

  Elements below 2**-126 (1.2e-38) count as zeros.

  Returns:
    A `coded.Code` of 1.61 bits per element.

  References:
    Vargaftik et al., EDEN: Communication-Efficient and Robust Distributed Mean
    Estimation for Federated Learning, ICML 2022,
    https://arxiv.org/abs/2108.08842, for the estimate and its scale.
  """
  return Eden(lloyd_max.THREE)


def eden(bits: int = 1) -> coded.Code:
  """Rotation and scales as in `eden3`, with 2**bits levels.

  Args:
    bits: bits per element: 1, 2, 3 or 4. Codes of 3 bits are packed in 4.

  Raises:
    ValueError: `bits` is out of its range.
  """
  if bits not in lloyd_max.LEVELS_BY_BITS:
    raise ValueError(
      f'eden: expected 1, 2, 3 or 4 bits, received {bits}. Use eden:bits=2, '
      'or eden3 for 1.6 bits.'
    )
  return Eden(lloyd_max.LEVELS_BY_BITS[bits])


def drive() -> coded.Code:
  """Signs after a rotation, and a scale for each block.

  Vargaftik et al., DRIVE: One-bit Distributed Mean Estimation, NeurIPS 2021,
  https://arxiv.org/abs/2105.08339, with the scale of theorem 3, which is EDEN
  at one bit. Departure: variables are rotated in blocks, see `eden3`.
  """
  return eden(1)


class EdenWords(wire.CompositePacking):
  """Packing of the rotation's key, and of the scales and codes of blocks."""

  name = 'eden_words'

  def __init__(self, levels: lloyd_max.Levels) -> None:
    """Creates the packing, for codes of these levels."""
    self.table = levels

  def num_words(self, num_elements: int) -> int:
    """Returns the number of words of the key, the scales and the codes."""
    if num_elements == 0:
      return 0
    blocks, block = rotation.blocks(num_elements)
    return _KEY_WORDS + blocks + self.table.packing.num_words(blocks * block)

  def planes(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """Decodes a payload to float32 [n], in units of the probe's powers of 2."""
    levels = self.table
    blocks, block = rotation.blocks(num_elements)
    key, scales, codes = tf.split(
      words, [_KEY_WORDS, blocks, words.shape[0] - _KEY_WORDS - blocks]
    )
    codes = levels.packing.unpack_flat(codes, blocks * block)
    rows = levels.levels(tf.reshape(codes, [blocks, block]))
    rows *= levels.limit_scales(scales)[:, tf.newaxis] / block
    return rotation.unrotate(rows, tf.bitcast(key, tf.uint32), num_elements)

  def check(
    self, words: np.ndarray, num_elements: int
  ) -> tuple[wire.Packing, np.ndarray, int]:
    """Rejects scales that exceed the agreed probe; returns the codes."""
    levels = self.table
    if num_elements == 0:
      return levels.packing, words, 0
    blocks, block = rotation.blocks(num_elements)
    scales = words[_KEY_WORDS : _KEY_WORDS + blocks].view(np.float32)
    code_words = words[_KEY_WORDS + blocks :]
    validation.check_scales(self.name, scales, 'finite scales >= 0')
    if levels.is_coarse and (scales.view(np.int32) & 0xFF).any():
      raise ValueError(
        f'{self.name}: expected scales of 16 significant bits, received '
        'others. The payload is corrupted. Send it again.'
      )
    codes = levels.packing.unpack_flat(tf.constant(code_words), blocks * block)
    bounds = levels.least_square(np.reshape(codes, [blocks, block]))
    # In units of the probe's power of two, elements have a root mean square of
    # at most 2, or 4 where that power was limited. A norm that overflows
    # float32 fails here. The square of a rotated block is `block` times that
    # of its elements.
    least = np.sum(scales.astype(np.float64) ** 2 * bounds)
    if least > 1.01 * 16 * block * num_elements:
      raise ValueError(
        'eden_words: expected scales of a gradient no larger than the agreed '
        f'probe, received up to {scales.max():g}. The payload is corrupted or '
        'from another codec. Send it again.'
      )
    return levels.packing, code_words, blocks * block


class Eden(coded.Code):
  """A code of rotated blocks with a few levels; see `eden3`."""

  scope = contract.BUCKET
  traits = contract.Traits(
    unbiased=False,
    lossless=False,
    additive=False,
    randomness='private',
    dense=True,
  )

  def __init__(self, levels: lloyd_max.Levels) -> None:
    """Creates the code, with these levels of rotated elements."""
    self.name, self.levels = f'rotate > {levels.name}', levels
    self.words = EdenWords(levels)
    self.stages = (self.words,)
    num_digits = levels.packing.elements_per_word
    base, _ = levels.packing.digits or (2 ** (32 // num_digits), num_digits)
    self.kernels = rotated_ops.RotatedCode(levels.values, base, num_digits)

  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the root mean square of each gradient, float32 [v]."""
    contract.check_gradients(gradients)
    counts = [max(1, gradient.shape.num_elements()) for gradient in gradients]
    # Not a division: compiled code would multiply, and round differently.
    return self._norms(gradients) * np.float32(np.power(counts, -0.5))

  def _norms(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    return statistics.norms(gradients)

  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Rotates a bucket and packs key, scales and codes; see `coded.Code`."""
    levels = self.levels
    flat = method.flat(pieces)
    if not sum(sizes):
      return tf.zeros([0], tf.int32)
    units = _repeat(_units(shared_probe), sizes)
    rotated = rotation.rotate(flat * units, key[:_KEY_WORDS])
    square = tf.reduce_sum(tf.square(tf.cast(rotated, tf.float64)), axis=1)
    deviation = tf.sqrt(square / rotated.shape[1])
    magnitude = tf.abs(rotated)
    index = tf.zeros(magnitude.shape, tf.int32)
    for border in levels.borders:
      least = tf.cast(border * deviation, tf.float32)[:, tf.newaxis]
      # In a block of zeros the border is 0, and no element is beyond it.
      index += tf.cast((magnitude >= least) & (magnitude > 0.0), tf.int32)
    level = tf.gather(tf.constant(levels.values, tf.float64), index)
    along = tf.reduce_sum(level * tf.cast(magnitude, tf.float64), axis=1)
    scales = tf.cast(tf.math.divide_no_nan(square, along), tf.float32)
    scales = statistics.canonical(scales)
    if levels.is_coarse:
      scales = lloyd_max.coarse(scales)
    codes = tf.reshape(levels.codes(index, rotated < 0.0), [-1])
    return tf.concat(
      [
        tf.bitcast(key[:_KEY_WORDS], tf.int32),
        tf.bitcast(scales, tf.int32),
        levels.packing.pack_flat(codes),
      ],
      axis=0,
    )

  @transport.accepts_float32
  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """Rotates all payloads back and adds them; see `coded.Code`."""
    sizes = method.sizes_of(shapes)
    if not sum(sizes):
      return [tf.zeros(shape) for shape in shapes]
    total = wire.sum_planes(self.words, parts, sum(sizes))
    total *= _repeat(rotation.power_of_two(shared_probe), sizes)
    return chain.gradients_of(None, total, shared_probe, shapes, scale)


class _EdenOnKernels(Eden, twin_of=Eden):
  """`Eden` with native kernels, each of which passes through memory once."""

  compiled = False
  _uses_gpus: bool | None = False

  def _norms(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    return ops.norms(gradients, bool(self._uses_gpus))

  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    on_gpus = bool(self._uses_gpus)
    factors = (_compiled_units if on_gpus else _units)(shared_probe)
    num_words, borders = self.num_words(sum(sizes)), self.levels.borders
    return rotated_ops.encode(
      pieces, sizes, factors, key, borders, num_words, self.kernels, on_gpus
    )

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    size = sum(method.sizes_of(shapes))
    wire.check_length(self.words.name, self.num_words(size), parts, size)
    on_gpus = bool(self._uses_gpus)
    powers = rotation.power_of_two
    factors = (_compiled_powers if on_gpus else powers)(shared_probe)
    return rotated_ops.decode_sum(
      parts, factors, shapes, scale, self.kernels, on_gpus
    )


def _units(shared_probe: tf.Tensor) -> tf.Tensor:
  """Returns the inverses of the probe's powers of 2, float32 [v]."""
  return division.divide_power_of_two(0, rotation.power_of_two(shared_probe))


# On a GPU each of the small operations would be a launch.
_compiled_units = tracing.compiled(_units)
_compiled_powers = tracing.compiled(rotation.power_of_two)


def _repeat(values: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
  """Repeats each variable's value for its elements, float32 [elements]."""
  return tf.concat(
    [tf.fill([size], values[i]) for i, size in enumerate(sizes)], axis=0
  )
