"""Natural compression: a sign and an exponent, rounded at random.

Horvath et al., Natural Compression for Distributed Deep Learning, 2019,
https://arxiv.org/abs/1905.10988, definition 1: 9 bits per element. No
departure; subnormal numbers are rounded to 0 or to 2**-126, also without bias.
"""

from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods import by_variable
from terngrad.codec.stages import packing
from terngrad.codec.stages import wire
from terngrad.native import grouped_ops
from terngrad.native import ops

_EXPONENTS, _SIGNS = packing.unsigned(8), packing.unsigned(1)
# The largest exponent of a finite float32.
_LARGEST = 254


class Natural(by_variable.ByVariable):
  """Rounds elements at random to one of the two nearest powers of two.

  Unbiased for magnitudes up to 2**127.
  """

  name = 'natural'
  traits = by_variable.RANDOM._replace(dense=True)

  def omega(self, num_elements: int) -> float:
    """Returns 1/8, theorem 2.1 of the paper."""
    return 0.125

  def num_words(self, num_elements: int) -> int:
    """Returns the number of words of exponents and signs."""
    return sum(words.num_words(num_elements) for words in (_EXPONENTS, _SIGNS))

  def encode_variable(
    self, values: tf.Tensor, draws: Callable[[], tf.Tensor]
  ) -> tf.Tensor:
    """Packs the randomly rounded exponents, then the signs."""
    bits = tf.bitcast(values, tf.int32)
    mantissa = tf.bitwise.bitwise_and(bits, 0x7FFFFF)
    exponent = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 23), 0xFF)
    draw = tf.bitwise.right_shift(draws(), tf.constant(9, tf.uint32))
    up = tf.cast(tf.bitcast(draw, tf.int32) < mantissa, tf.int32)
    return tf.concat(
      [
        _EXPONENTS.pack_flat(tf.minimum(exponent + up, _LARGEST)),
        _SIGNS.pack_flat(tf.cast(bits < 0, tf.int32)),
      ],
      axis=0,
    )

  def planes(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """Decodes exponents and signs to float32 [n]."""
    count = _EXPONENTS.num_words(num_elements)
    exponent = _EXPONENTS.unpack_flat(words[:count], num_elements)
    sign = _SIGNS.unpack_flat(words[count:], num_elements)
    # No encoder sends infinity, but a damaged payload may contain it.
    bits = tf.bitwise.left_shift(tf.minimum(exponent, _LARGEST), 23)
    return tf.bitcast(
      tf.bitwise.bitwise_or(bits, tf.bitwise.left_shift(sign, 31)), tf.float32
    )

  def check(
    self, words: np.ndarray, num_elements: int
  ) -> tuple[wire.Packing, np.ndarray, int]:
    """Rejects infinities, and returns the signs for further checks."""
    count = _EXPONENTS.num_words(num_elements)
    if words[:count].view(np.uint8).max(initial=0) > _LARGEST:
      raise ValueError(
        f'natural: expected exponents of at most {_LARGEST}, received 255. The '
        'payload is corrupted. Send it again.'
      )
    exponents = _EXPONENTS.unpack_flat(tf.constant(words[:count]), 4 * count)
    if exponents[num_elements:].numpy().any():
      raise ValueError(
        f'natural: expected exponents 0 past the last of {num_elements} '
        'elements, received others. The payload is corrupted. Send it again.'
      )
    return _SIGNS, words[count:], num_elements


class _NaturalOnGpus(Natural, twin_of=Natural):
  """`Natural` with GPU kernels."""

  compiled = False
  _is_for_cpus = False
  _uses_gpus: bool | None = True

  def probe(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    return ops.norms(gradients, on_gpus=True)

  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    return grouped_ops.encode_natural(pieces, sizes, key, self.words_of(sizes))

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    return grouped_ops.decode_natural(parts, shapes, scale)
