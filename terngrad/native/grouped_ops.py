"""The kernels of codes of groups of elements, as functions on tensors.

They run in eager code and graphs, not under XLA.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad import native

# The order of the enumerations in kernels.h and gpu/tables.h. Only GPU kernels
# have floats.
STEPS, SPANS, SIGNS, FLOATS = range(4)


class GroupedCode(NamedTuple):
  """The parameters of a code in `codec.methods.grouped`.

  Attributes:
    kind: STEPS: signed multiples of a step (qsgd); SPANS: multiples of a step
      above the minimum (minmax); SIGNS: signs and the mean magnitude (sign);
      FLOATS: 8-bit floats and a power of two (fp8).
    levels: the largest multiple, from 1 to 255; of FLOATS the largest finite
      code, 0x7E for e4m3 or 0x7B for e5m2.
    base: of a word's digits, >= 2.
    places: digits per word; they must fit in 32 bits.
    group_size: elements of a group; 0 for one group per variable.
    is_norm: for STEPS: True if the step is a fraction of the Euclidean norm,
      False if it is a fraction of the largest magnitude.
  """

  kind: int
  levels: int
  base: int
  places: int
  group_size: int = 0
  is_norm: bool = False


def encode(
  pieces: Sequence[tf.Tensor],
  sizes: Sequence[int],
  key: tf.Tensor,
  num_words: int,
  code: GroupedCode,
  on_gpus: bool = False,
) -> tf.Tensor:
  """Scales, rounds and packs each variable, in one pass if groups are small.

  Args:
    pieces: float32, one tensor per variable or one with all variables.
    sizes: elements of each of the v variables.
    key: uint32 [2] or more, for the random bits from the first element on.
    num_words: of the payload.
    code: the parameters.
    on_gpus: whether tensors are on a GPU; see `gpu.available`.

  Returns:
    int32 [num_words]: for each variable the scales of its groups, then its
    codes. Wherever in a group a NaN is, the minimum (SPANS) or the mean
    magnitude (SIGNS) is NaN, of equal bits on all devices, and the step and the
    integers are 0.
  """
  return native.operation('encode_groups', on_gpus)(
    gradients=pieces,
    key=key,
    sizes=sizes,
    num_words=num_words,
    **code._asdict(),
  )


def decode_sum(
  parts: Sequence[tf.Tensor],
  shapes: Sequence[Sequence[int]],
  scale: float,
  code: GroupedCode,
  on_gpus: bool = False,
) -> list[tf.Tensor]:
  """Unpacks payloads and adds their values, in one pass.

  Args:
    parts: int32 [n, words], in the row order of `codec.method.Piece`.
    shapes: the v static shapes.
    scale: factor of the sums.
    code: the parameters.
    on_gpus: as for `encode`.

  Returns:
    v float32 of `shapes`.
  """
  return native.operation('decode_groups', on_gpus)(
    parts=parts, V=len(shapes), shapes=shapes, scale=scale, **code._asdict()
  )


def encode_natural(
  pieces: Sequence[tf.Tensor],
  sizes: Sequence[int],
  key: tf.Tensor,
  num_words: int,
) -> tf.Tensor:
  """Rounds to signs and exponents at random and packs, on a GPU.

  The arguments are those of `encode`. Returns int32 [num_words]: for each
  variable the exponents, then the signs.
  """
  return native.operation('encode_natural', True)(
    gradients=pieces, key=key, sizes=sizes, num_words=num_words
  )


def decode_natural(
  parts: Sequence[tf.Tensor], shapes: Sequence[Sequence[int]], scale: float
) -> list[tf.Tensor]:
  """Unpacks signs and exponents and adds their values, on a GPU.

  The arguments and the result are those of `decode_sum`.
  """
  return native.operation('decode_natural', True)(
    parts=parts, V=len(shapes), shapes=shapes, scale=scale
  )
