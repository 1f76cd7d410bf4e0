"""Slices of a bucket's words: which process sums which elements."""

from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import planes
from terngrad.codec import wire


class Slices(NamedTuple):
  """A cut of words into as many slices as there are processes.

  Attributes:
    packing: `codec.wire.Packing` of 32-bit words.
    num_words: of a payload.
    num_elements: of a payload.
    processes: P.
    width: words of a slice; those past the last word are 0.
  """

  packing: tuple
  num_words: int
  num_elements: int
  processes: int
  width: int

  @property
  def places(self):
    """Elements of a word."""
    return self.packing.elements_per_word

  def deal(self, payloads):
    """int32 [own, words] as int32 [processes, own, width]."""
    own = payloads.shape[0]
    past = self.width * self.processes - self.num_words
    padded = tf.pad(payloads, [[0, 0], [0, past]])
    rows = tf.reshape(padded, [own, self.processes, self.width])
    return tf.transpose(rows, [1, 0, 2])

  def sums(self, received, num_workers):
    """Sums of the codes of all workers, int32 [places, width].

    Args:
      received: int32 [processes, own, width], what each had for this process.
      num_workers: of all processes.
    """
    rows = tf.reshape(received, [num_workers * self.width])
    codes = planes.join(self.packing.unpack(rows))
    shape = [self.places, num_workers, self.width]
    return tf.reduce_sum(tf.reshape(codes, shape), axis=1)

  def exists(self, rank):
    """What of a process's slice is an element, bool [places, width]."""
    words = rank * self.width + tf.range(self.width)
    elements = tf.range(self.places)[:, tf.newaxis] * self.num_words + words
    return (words < self.num_words) & (elements < self.num_elements)

  def in_order(self, values):
    """The values of all slices, [processes, places * width], as a payload's."""
    shape = [self.processes, self.places, self.width]
    rows = tf.transpose(tf.reshape(values, shape), [1, 0, 2])
    rows = tf.reshape(rows, [self.places, -1])
    return tf.reshape(rows[:, : self.num_words], [-1])


def of(bucket, processes):
  """The slices of a `codec.gradients.Bucket`, where `fits` says it has some."""
  return Slices(
    packing=bucket.codec.packing,
    num_words=bucket.num_words,
    num_elements=bucket.num_elements,
    processes=processes,
    width=-(-bucket.num_words // processes),
  )


def fits(codec):
  """Whether a few words of a payload can be summed without the others."""
  packing = codec.packing
  return (
    codec.decode_codes is not None
    and isinstance(packing, wire.Packing)
    and packing.word_bits == 32
  )


def in_planes(values, packing):
  """Values as the planes of a packing.

  Args:
    values: int32, any shape.
    packing: `codec.wire.Packing` of k elements a word.

  Returns:
    List of k int32 [w]; zeros past the last value.
  """
  flat = tf.reshape(values, [-1])
  count = packing.elements_per_word
  row = packing.width(flat.shape[0])
  flat = tf.pad(flat, [[0, row * count - flat.shape[0]]])
  return tf.split(flat, count)


def of_planes(rows, cut):
  """The slices of all processes from planes of their words side by side.

  Args:
    rows: list of [processes * w], or a tensor of such, from an `unpack`.
    cut: `Slices`.

  Returns:
    [processes, places * width], as `Slices.in_order` takes it.
  """
  rows = rows if isinstance(rows, list) else tf.unstack(rows)
  parts = [tf.reshape(row, [cut.processes, -1]) for row in rows]
  return tf.concat(parts, axis=1)[:, : cut.places * cut.width]
