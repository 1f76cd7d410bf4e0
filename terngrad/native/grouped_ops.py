"""The kernels of codes of groups of elements, as functions on tensors.

As those of `ops`: in eager code and graphs, not under XLA.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad import native

# Of kernels.h, in its order.
STEPS, SPANS, SIGNS = range(3)


class Code(NamedTuple):
  """A code of groups of elements; see `codec.methods.grouped`.

  Attributes:
    kind: STEPS: signed multiples of a step (qsgd); SPANS: multiples of a step
      above the least (minmax); SIGNS: signs and the mean magnitude (sign).
    levels: the largest multiple, from 1 to 255.
    base: of a word's digits, >= 2.
    places: digits of a word, which fit in 32 bits.
    group_size: elements of a group; 0 for all of a variable.
    is_norm: of STEPS: True where the step is a part of the Euclidean norm,
      False where of the largest magnitude.
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
  code: Code,
) -> tf.Tensor:
  """Scales, rounds and packs each variable, in one pass where groups are small.

  Args:
    pieces: list of float32, the v variables, or one tensor with all of them.
    sizes: list of v int, their elements.
    key: uint32 [2] or more, of the random bits of the first element.
    num_words: of the payload.
    code: `Code`.

  Returns:
    int32 [num_words]: for each variable its groups' scales, then its codes.
  """
  return native.library().terngrad_encode_groups(
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
  code: Code,
) -> list[tf.Tensor]:
  """Unpacks payloads and adds what they stand for, in one pass.

  Args:
    parts: list of int32 [n, words], see `codec.method.Piece`.
    shapes: list of v static shapes.
    scale: Python float, multiplies the sums.
    code: `Code`.

  Returns:
    List of v float32 of `shapes`.
  """
  return native.library().terngrad_decode_groups(
    parts=parts, V=len(shapes), shapes=shapes, scale=scale, **code._asdict()
  )
