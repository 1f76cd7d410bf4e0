"""Payloads in pieces of their words, decoded piece by piece into variables.

What is gathered comes in pieces. A kernel takes each as it comes, so that one
is decoded while others are on the wire, and none is copied into a whole.
"""

import tensorflow as tf

from terngrad.native import ops


def descend(codec, pieces, shared, descent, rates):
  """Moves variables by the average gradients, where their codecs can.

  Args:
    codec: `gradients.GradientCodec`.
    pieces: list of list of int32 [n, words of the piece]: one after the other,
      the pieces of what `GradientCodec.decode_mean` takes.
    shared: float32 [num_probes], the agreed probe.
    descent: `native.ops.Descent` of all variables of the codec.
    rates: see `native.ops.descend`.
  """
  for bucket, own, agreed, scale in _of_buckets(codec, pieces, shared):
    if bucket.codec.descend:
      variables = descent.of(bucket.indices)
      for piece in own:
        bucket.codec.descend(piece, agreed, scale, variables, rates)


def rest(codec):
  """Places of the variables that `descend` does not move, tuple of int."""
  return tuple(
    i
    for bucket in codec.buckets
    if not bucket.codec.descend
    for i in bucket.indices
  )


def decode_rest(codec, pieces, shared):
  """The average gradients of the variables of `rest`, in its order.

  Args:
    codec: `gradients.GradientCodec`.
    pieces: see `descend`.
    shared: float32 [num_probes].

  Returns:
    List of float32.
  """
  return decode(codec, pieces, shared, lambda bucket: not bucket.codec.descend)


def decode(codec, pieces, shared, wanted=lambda bucket: True):
  """The average gradients, bucket after bucket.

  Args:
    codec: `gradients.GradientCodec`.
    pieces: see `descend`.
    shared: float32 [num_probes].
    wanted: takes a `gradients.Bucket`, False leaves its variables out.

  Returns:
    List of float32.
  """
  means = []
  for bucket, own, agreed, scale in _of_buckets(codec, pieces, shared):
    if wanted(bucket):
      parts = whole([piece.parts for piece in own])
      means += bucket.codec.decode_sum(parts, agreed, bucket.shapes, scale)
  return means


def whole(pieces):
  """The parts that pieces are of, as `GradientCodec.decode_mean` takes them."""
  if len(pieces) == 1:
    return pieces[0]
  return [tf.concat(columns, axis=1) for columns in zip(*pieces, strict=True)]


def _of_buckets(codec, pieces, shared):
  """For each bucket (it, its `ops.Piece`s, its part of `shared`, 1 / n)."""
  num_workers = sum(part.shape[0] for part in pieces[0])
  start = 0
  for bucket, places in zip(
    codec.buckets, codec.probes_of_buckets(), strict=True
  ):
    stop = start + bucket.num_words
    own = _between(pieces, start, stop)
    # Graphs and XLA turn a division by a constant into this product, which may
    # differ in the last bit; so that eager code agrees, all multiply.
    yield bucket, own, tf.gather(shared, places), 1.0 / num_workers
    start = stop


def _between(pieces, start, stop):
  """Words [start, stop) as `ops.Piece`s, at least one."""
  found, at = [], 0
  for parts in pieces:
    width = parts[0].shape[1]
    begin, end = max(at, start), min(at + width, stop)
    if begin < end:
      own = parts
      if end - begin < width:
        own = [part[:, begin - at : end - at] for part in parts]
      found.append(ops.Piece(begin - start, own))
    at += width
  return found or [ops.Piece(0, [part[:, :0] for part in pieces[0]])]
