"""Parts of a model whose codes travel apart, those of the last layers first.

A backward pass makes the gradients of the last layers first. In parts, they
are on their way while the others are still computed. An element keeps the bits
that it draws in one piece, and scalers are each variable's own: what is decoded
does not depend on the parts.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.reduce import buckets as buckets_lib
from terngrad.reduce import gradients

_FLOAT_BYTES = 4


class Part(NamedTuple):
  """Variables whose codes travel together.

  Attributes:
    codec: `gradients.GradientCodec` of these variables alone.
    indices: tuple of int, the variables' indices in the model, ascending.
    probes: int array, where the numbers of their probe stand in the model's.
  """

  codec: gradients.GradientCodec
  indices: tuple[int, ...]
  probes: np.ndarray


def cut(
  codec: gradients.GradientCodec, max_bytes: int
) -> gradients.GradientCodec:
  """The codec with its buckets cut into parts.

  From the last variable on a part takes variables until it has `max_bytes` of
  float32 gradients or more.

  Args:
    codec: `gradients.GradientCodec` of one part.
    max_bytes: >= 0; 0 leaves one part.

  Returns:
    A `gradients.GradientCodec`; `codec` itself where it has a code that mixes
    the elements of a bucket.
  """
  ends = _ends(codec, max_bytes)
  if any(b.method.scope == contract.BUCKET for b in codec.buckets):
    return codec
  buckets = [
    _range(bucket, begin, end, number)
    for number, (end, begin) in enumerate(zip(ends, ends[1:], strict=False))
    for bucket in codec.buckets
  ]
  return gradients.GradientCodec(tuple(b for b in buckets if b.indices))


def parts(codec: gradients.GradientCodec) -> list[Part]:
  """The parts of a codec, in the order in which they travel.

  Args:
    codec: `gradients.GradientCodec`, from `cut` or not.

  Returns:
    List of `Part`.
  """
  probed = codec.probed_variables()
  found = []
  for number in sorted({bucket.part for bucket in codec.buckets}):
    own = [bucket for bucket in codec.buckets if bucket.part == number]
    indices = tuple(sorted(i for bucket in own for i in bucket.indices))
    local = tuple(
      bucket._replace(indices=tuple(map(indices.index, bucket.indices)))
      for bucket in own
    )
    probes = np.flatnonzero(np.isin(probed, indices))
    found.append(Part(gradients.GradientCodec(local), indices, probes))
  return found


def join_probes(some: list[Part], probes: list[tf.Tensor]) -> tf.Tensor:
  """The model's probe from those of its parts.

  Args:
    some: list of `Part`, all of them.
    probes: for each float32 [..., its probes].

  Returns:
    float32 [..., probes].
  """
  if len(some) == 1:
    return probes[0]
  order = np.argsort(np.concatenate([part.probes for part in some]))
  return tf.gather(tf.concat(probes, axis=-1), order, axis=-1)


def _ends(codec: gradients.GradientCodec, max_bytes: int) -> list[int]:
  """Borders between parts, as indices of variables, the last first."""
  sizes = {}
  for bucket in codec.buckets:
    for i, shape in zip(bucket.indices, bucket.shapes, strict=True):
      sizes[i] = _FLOAT_BYTES * tf.TensorShape(shape).num_elements()
  borders, gathered = [len(sizes)], 0
  for i in range(len(sizes) - 1, 0, -1):
    gathered += sizes[i]
    if max_bytes and gathered >= max_bytes:
      borders.append(i)
      gathered = 0
  return [*borders, 0]


def _range(
  bucket: buckets_lib.Bucket, begin: int, end: int, number: int
) -> buckets_lib.Bucket:
  """The bucket's variables from `begin` to before `end`."""
  sizes = [tf.TensorShape(shape).num_elements() for shape in bucket.shapes]
  members = [n for n, i in enumerate(bucket.indices) if begin <= i < end]
  start = sum(sizes[: members[0]]) if members else 0
  return bucket.only(members)._replace(start=start, part=number)
