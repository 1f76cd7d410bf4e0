"""Sums of payloads, as parameter servers make them and workers read them.

A server adds what the workers pushed and packs the sum again: codes of N
workers have 2 N + 1 levels and travel as `packing.sums(N)`, 32 / 13 bits an
element for N = 2; sums of floats travel as float32. What a worker decodes is
equal to the bit to `GradientCodec.decode_mean` of all payloads.

Servers share a payload by words. A packing of fixed length can be cut at any
word, because a range of words is the same range of every plane; a bucket of
another kind goes to one server whole.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec import chain
from terngrad.codec import gradients
from terngrad.codec import packing as packings
from terngrad.codec import planes
from terngrad.codec import wire


class Piece(NamedTuple):
  """A range of words of one bucket's payload, and what its sum looks like.

  Attributes:
    bucket: `gradients.Bucket`.
    place: of the bucket in its `GradientCodec`.
    probes: where the bucket's numbers stand in the probe.
    start: first word, counted in the bucket.
    stop: word after the last.
    num_planes: rows of the sum; 1 where the server decodes.
    width: places in a row.
    num_words: of the packed sum.
  """

  bucket: gradients.Bucket
  place: int
  probes: np.ndarray
  start: int
  stop: int
  num_planes: int
  width: int
  num_words: int


class Totals:
  """What one `GradientCodec` means for servers.

  Attributes:
    ranges: for each server the pair (first word, word after the last) of the
      workers' payloads that it takes; empty where there are more servers than
      words.
    num_words: for each server, of the sum that a worker pulls.
  """

  def __init__(self, codec, num_workers, num_servers):
    """Shares the payloads among servers.

    Args:
      codec: `gradients.GradientCodec`.
      num_workers: whose payloads are added, >= 1.
      num_servers: >= 1.
    """
    self._codec = codec
    self._num_workers = num_workers
    self.ranges = _ranges(codec, num_servers)
    self._pieces = [_pieces(codec, num_workers, *r) for r in self.ranges]
    self.num_words = [sum(p.num_words for p in some) for some in self._pieces]

  def bits(self):
    """Bits that a worker pulls a step, the agreed probe included."""
    return 32 * (sum(self.num_words) + self._codec.num_probes)

  def add(self, server, parts, shared):
    """The packed sum of a server's range.

    Args:
      server: its number.
      parts: list of int32 [n, words of its range]; see
        `contract.Codec.decode_sum`.
      shared: float32 [probes], the agreed probe.

    Returns:
      int32 [num_words[server]].
    """
    begin, _ = self.ranges[server]
    words, offset = [], begin
    for piece in self._pieces[server]:
      size = piece.stop - piece.start
      columns = slice(offset - begin, offset - begin + size)
      own = [part[:, columns] for part in parts]
      words.append(_add(piece, own, shared, self._num_workers))
      offset += size
    return words[0] if len(words) == 1 else tf.concat(words, axis=0)

  def decode_mean(self, sums, shared):
    """The average gradient of the workers.

    Args:
      sums: for each server with a range int32 [num_words], from `add`.
      shared: float32 [probes], the agreed probe.

    Returns:
      List of float32, in the order and shapes of the variables.
    """
    rows = [[] for _ in self._codec.buckets]
    for pieces, words in zip(filter(None, self._pieces), sums, strict=True):
      parts = tf.split(words, [piece.num_words for piece in pieces])
      for piece, part in zip(pieces, parts, strict=True):
        rows[piece.place].append(_unpack(piece, part, self._num_workers))
    means = []
    numbers = self._codec.probes_of_buckets()
    for bucket, places, parts in zip(
      self._codec.buckets, numbers, rows, strict=True
    ):
      flat = parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)
      agreed = tf.gather(shared, places)
      scale = 1.0 / self._num_workers if _cuttable(bucket.codec) else 1.0
      means += _gradients(bucket, tf.reshape(flat, [-1]), agreed, scale)
    return self._codec.in_model_order(means)


def _cuttable(codec):
  """Whether sums of unpacked codes, or floats, say all without the probe."""
  floats = codec.quantizer is None and isinstance(codec.packing, wire.Packing)
  return floats or codec.traits.additive


def _ranges(codec, num_servers):
  """Nearly equal ranges of a payload; buckets that cannot be cut stay whole."""
  borders, end = [], 0
  for bucket in codec.buckets:
    borders.append((bucket, end, end + bucket.num_words))
    end += bucket.num_words
  cuts = [0]
  for server in range(1, num_servers):
    ideal = server * end // num_servers
    for bucket, start, stop in borders:
      if start < ideal < stop:
        fixed = isinstance(bucket.codec.packing, wire.Packing)
        if fixed and _cuttable(bucket.codec):
          words = bucket.codec.packing.word_bits // 32
          ideal = start + (ideal - start) // words * words
        else:
          ideal = start if ideal - start < stop - ideal else stop
    cuts.append(ideal)
  return list(zip(cuts, [*cuts[1:], end], strict=True))


def _pieces(codec, num_workers, begin, end):
  """The pieces of a range, in the order of the payload."""
  found, offset = [], 0
  numbers = codec.probes_of_buckets()
  for place, bucket in enumerate(codec.buckets):
    start = max(begin, offset) - offset
    stop = min(end, offset + bucket.num_words) - offset
    offset += bucket.num_words
    if start < stop:
      sizes = _sizes(bucket, stop - start, num_workers)
      found.append(Piece(bucket, place, numbers[place], start, stop, *sizes))
  return found


def _sizes(bucket, count, num_workers):
  """(num_planes, width, num_words) of a `Piece` of `count` words."""
  codec = bucket.codec
  packing = codec.packing
  if not _cuttable(codec):
    size = bucket.num_elements
    return 1, size, size
  if isinstance(packing, wire.Packing):
    width = count * 32 // packing.word_bits
  else:
    width = packing.width(bucket.num_elements)
  num_planes = packing.elements_per_word
  size = num_planes * width
  if codec.quantizer:
    size = _sums(codec.quantizer, num_workers).num_words(size)
  return num_planes, width, size


def _sums(quantizer, num_workers):
  """The packing of sums of codes."""
  return packings.sums(num_workers * quantizer.levels)


def _small(quantizer, num_workers):
  """The narrowest type that holds a sum of codes."""
  return tf.int8 if num_workers * quantizer.levels < 128 else tf.int32


def _add(piece, parts, shared, num_workers):
  """The packed sum of a piece, from int32 [n, words] a device."""
  bucket = piece.bucket
  if not _cuttable(bucket.codec):
    means = bucket.codec.decode_sum(
      parts, tf.gather(shared, piece.probes), bucket.shapes, 1.0 / num_workers
    )
    flat = tf.concat([tf.reshape(mean, [-1]) for mean in means], axis=0)
    return tf.bitcast(flat, tf.int32)
  packing, quantizer = bucket.codec.packing, bucket.codec.quantizer
  size = piece.num_planes * piece.width

  @_compiled
  def add(parts):
    sums = planes.sum_planes(packing, parts, size)
    return tf.cast(sums, _small(quantizer, num_workers)) if quantizer else sums

  sums = add(parts)
  if not quantizer:
    return tf.bitcast(sums, tf.int32)
  target = _sums(quantizer, num_workers)
  missing = target.width(size) * target.elements_per_word - size
  padded = tf.pad(sums, [[0, missing]])

  @_compiled
  def pack(sums):
    codes = tf.cast(sums, tf.int32)
    rows = tf.reshape(codes, [target.elements_per_word, -1])
    return target.pack(tf.unstack(rows))

  return pack(padded)


def _unpack(piece, words, num_workers):
  """The sum of a piece, [num_planes, width] of int8, int32 or float32."""
  quantizer = piece.bucket.codec.quantizer
  shape = [piece.num_planes, piece.width]
  if not (quantizer and _cuttable(piece.bucket.codec)):
    return tf.reshape(tf.bitcast(words, tf.float32), shape)
  target = _sums(quantizer, num_workers)

  @_compiled
  def unpack(words):
    small = _small(quantizer, num_workers)
    return [tf.cast(plane, small) for plane in target.unpack(words)]

  # Joined outside of compiled code, which branches at every element of it.
  sums = planes.join(unpack(words))
  return tf.reshape(sums[: shape[0] * shape[1]], shape)


def _gradients(bucket, sums, agreed, scale):
  """The average gradients of a bucket from the sums of its elements."""
  codec = bucket.codec
  quantizer = codec.quantizer if _cuttable(codec) else None
  group_size = codec.group_size if quantizer else 0

  @_compiled
  def decode(sums, agreed):
    if quantizer:
      sums = tf.cast(sums, tf.int32)
    return chain.gradients_of(
      quantizer, sums, agreed, bucket.shapes, scale, group_size
    )

  return decode(sums, agreed)


def _compiled(function):
  """Compiled where a traced step calls it, each for its own device."""
  return tf.function(function, jit_compile=True)
