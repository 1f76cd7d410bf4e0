"""Slices of a message's words: each process adds the elements of one slice."""

from typing import NamedTuple
from typing import cast

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import wire


class SliceLayout(NamedTuple):
  """A partition of a message's words into one slice per process.

  Attributes:
    packing: a packing with 32-bit words.
    num_words: of a message.
    num_elements: of a message.
    processes: the number of processes P.
  """

  packing: wire.Packing
  num_words: int
  num_elements: int
  processes: int

  @property
  def width(self) -> int:
    """Words of a slice; words past the end of the message are 0."""
    return -(-self.num_words // self.processes)

  @property
  def elements_per_word(self) -> int:
    """Elements of a word."""
    return self.packing.elements_per_word

  def split(self, rows: tf.Tensor) -> tf.Tensor:
    """Splits words [local workers, num_words], in transport, into slices.

    Returns:
      The same type, [processes, local workers, width].
    """
    nodes = rows.shape[0]
    padding = self.width * self.processes - self.num_words
    if padding:
      rows = tf.pad(rows, [[0, 0], [0, padding]])
    rows = tf.reshape(rows, [nodes, self.processes, self.width])
    if nodes == 1:
      return tf.reshape(rows, [self.processes, 1, self.width])
    return tf.transpose(rows, [1, 0, 2])

  def sums(self, received: tf.Tensor) -> tf.Tensor:
    """Adds the codes of all workers.

    Args:
      received: int32 [processes, workers of a process, width], what each
        process sent to this one.

    Returns:
      int32 [elements per word, width].
    """
    codes = wire.join(self.packing.unpack(tf.reshape(received, [-1])))
    shape = [
      self.elements_per_word,
      received.shape[0] * received.shape[1],
      self.width,
    ]
    return tf.reduce_sum(tf.reshape(codes, shape), axis=1)

  def sums_in_order(self, received: tf.Tensor) -> tf.Tensor:
    """Adds floats in the order of the workers.

    Args:
      received: as for `sums`, or float32 as in `transport`.

    Returns:
      float32 [elements per word * width].
    """
    rows = tf.reshape(received, [-1, self.width])
    return wire.sum_planes(
      self.packing, [rows], self.elements_per_word * self.width
    )

  def arrange_planes(self, values: tf.Tensor) -> tf.Tensor:
    """Returns slices [processes, n * width] as planes [n, words].

    n is `elements_per_word`.
    """
    shape = [self.processes, self.elements_per_word, self.width]
    rows = tf.transpose(tf.reshape(values, shape), [1, 0, 2])
    rows = tf.reshape(rows, [self.elements_per_word, -1])
    return rows[:, : self.num_words]


def layout_of(message: methods.Message, processes: int) -> SliceLayout:
  """Returns the slices of a message for which `fits` is True."""
  packing = cast(wire.Packing, message.packing)
  return SliceLayout(
    packing, message.num_words, message.num_elements, processes
  )


def fits(message: methods.Message) -> bool:
  """Returns True if a range of a message's words can be summed separately."""
  packing = message.packing
  return (
    message.num_elements > 0
    and isinstance(packing, wire.Packing)
    and packing.word_bits == 32
  )


def split_planes(values: tf.Tensor, packing: wire.Packing) -> list[tf.Tensor]:
  """Splits values into the planes of a packing.

  Args:
    values: int32, any shape.
    packing: with k elements per word.

  Returns:
    k int32 [w]; zeros past the last value.
  """
  flat = tf.reshape(values, [-1])
  count = packing.elements_per_word
  row = packing.width(flat.shape[0])
  return tf.split(tf.pad(flat, [[0, row * count - flat.shape[0]]]), count)


def join_planes(rows: wire.Planes, layout: SliceLayout) -> tf.Tensor:
  """Converts the planes of consecutive slices to one row per process.

  Args:
    rows: list of [processes * w], or one such tensor, from an `unpack`.
    layout: the slices.

  Returns:
    [processes, elements per word * width], for `SliceLayout.arrange_planes`.
  """
  rows = rows if isinstance(rows, list) else tf.unstack(rows)
  parts = [tf.reshape(row, [layout.processes, -1]) for row in rows]
  return tf.concat(parts, axis=1)[:, : layout.elements_per_word * layout.width]
