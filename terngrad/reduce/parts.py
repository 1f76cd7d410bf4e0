"""Cuts a model into parts that are sent separately, the last layers first.

The backward pass computes the gradients of the last layers first. With parts,
these gradients travel while those of earlier layers are still computed. The
decoded means do not depend on the parts: an element draws the same random bits
as in an uncut bucket, and each variable has a separate scaler.
"""

import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.reduce import buckets as buckets_lib
from terngrad.reduce import gradients

_FLOAT_BYTES = 4


def cut(
  codec: gradients.GradientCodec, max_bytes: int
) -> gradients.GradientCodec:
  """Cuts the buckets of a codec into parts.

  Starting at the last variable, a part takes variables until it has `max_bytes`
  of float32 gradients or more.

  Args:
    codec: not cut yet.
    max_bytes: bytes, >= 0; 0 makes one part.

  Returns:
    The cut codec; `codec` itself if one of its codes mixes the elements of a
    bucket.
  """
  ends = _borders(codec, max_bytes)
  if any(b.method.scope == contract.BUCKET for b in codec.buckets):
    return codec
  buckets = [
    _select_range(bucket, begin, end, number)
    for number, (end, begin) in enumerate(zip(ends, ends[1:], strict=False))
    for bucket in codec.buckets
  ]
  return gradients.GradientCodec(tuple(b for b in buckets if b.indices))


def _borders(codec: gradients.GradientCodec, max_bytes: int) -> list[int]:
  """Borders between parts as indices of variables, descending."""
  sizes = {}
  for bucket in codec.buckets:
    for i, shape in zip(bucket.indices, bucket.shapes, strict=True):
      sizes[i] = _FLOAT_BYTES * tf.TensorShape(shape).num_elements()
  borders, num_bytes = [len(sizes)], 0
  for i in range(len(sizes) - 1, 0, -1):
    num_bytes += sizes[i]
    if max_bytes and num_bytes >= max_bytes:
      borders.append(i)
      num_bytes = 0
  return [*borders, 0]


def _select_range(
  bucket: buckets_lib.Bucket, begin: int, end: int, number: int
) -> buckets_lib.Bucket:
  """Selects the bucket's variables with model indices in [begin, end)."""
  sizes = [tf.TensorShape(shape).num_elements() for shape in bucket.shapes]
  members = [n for n, i in enumerate(bucket.indices) if begin <= i < end]
  start = sum(sizes[: members[0]]) if members else 0
  return bucket.select(members)._replace(start=start, part=number)
