"""Slices of a message's words: which process sums which elements."""

from typing import NamedTuple
from typing import cast

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import wire


class Slices(NamedTuple):
  """A cut of words into as many slices as there are processes.

  Attributes:
    packing: `codec.stages.wire.Packing` of 32-bit words.
    num_words: of a message.
    num_elements: of a message.
    processes: P.
  """

  packing: wire.Packing
  num_words: int
  num_elements: int
  processes: int

  @property
  def width(self) -> int:
    """Words of a slice; those past the last word are 0."""
    return -(-self.num_words // self.processes)

  @property
  def elements_per_word(self) -> int:
    """Elements of a word."""
    return self.packing.elements_per_word

  def deal(self, rows: tf.Tensor) -> tf.Tensor:
    """int32 [own, num_words] as int32 [processes, own, width]."""
    own = rows.shape[0]
    past = self.width * self.processes - self.num_words
    if past:
      rows = tf.pad(rows, [[0, 0], [0, past]])
    rows = tf.reshape(rows, [own, self.processes, self.width])
    if own == 1:
      return tf.reshape(rows, [self.processes, 1, self.width])
    return tf.transpose(rows, [1, 0, 2])

  def sums(self, received: tf.Tensor) -> tf.Tensor:
    """Sums of the codes of all workers, int32 [elements a word, width].

    Args:
      received: int32 [processes, own, width], what each had for this process.
    """
    codes = wire.join(self.packing.unpack(tf.reshape(received, [-1])))
    shape = [
      self.elements_per_word,
      received.shape[0] * received.shape[1],
      self.width,
    ]
    return tf.reduce_sum(tf.reshape(codes, shape), axis=1)

  def sums_in_order(self, received: tf.Tensor) -> tf.Tensor:
    """Sums of floats, added in the order of the workers; see `sums`.

    Returns:
      float32 [elements a word * width].
    """
    rows = tf.reshape(received, [-1, self.width])
    return wire.sum_planes(
      self.packing, [rows], self.elements_per_word * self.width
    )

  def by_digit(self, values: tf.Tensor) -> tf.Tensor:
    """All slices, [processes, n * width], as [n, words]; n elements a word."""
    shape = [self.processes, self.elements_per_word, self.width]
    rows = tf.transpose(tf.reshape(values, shape), [1, 0, 2])
    rows = tf.reshape(rows, [self.elements_per_word, -1])
    return rows[:, : self.num_words]


def of(message: methods.Message, processes: int) -> Slices:
  """The `Slices` of a message where `fits` says it has some."""
  packing = cast(wire.Packing, message.packing)
  return Slices(packing, message.num_words, message.num_elements, processes)


def fits(message: methods.Message) -> bool:
  """Whether a few words of a message can be summed without the others."""
  packing = message.packing
  return (
    message.num_elements > 0
    and isinstance(packing, wire.Packing)
    and packing.word_bits == 32
  )


def in_planes(values: tf.Tensor, packing: wire.Packing) -> list[tf.Tensor]:
  """Values as the planes of a packing.

  Args:
    values: int32, any shape.
    packing: of k elements a word.

  Returns:
    List of k int32 [w]; zeros past the last value.
  """
  flat = tf.reshape(values, [-1])
  count = packing.elements_per_word
  row = packing.width(flat.shape[0])
  return tf.split(tf.pad(flat, [[0, row * count - flat.shape[0]]]), count)


def of_planes(rows: wire.Planes, cut: Slices) -> tf.Tensor:
  """The slices of all processes from planes of their words side by side.

  Args:
    rows: list of [processes * w], or a tensor of such, from an `unpack`.
    cut: `Slices`.

  Returns:
    [processes, elements a word * width], as `Slices.by_digit` takes it.
  """
  rows = rows if isinstance(rows, list) else tf.unstack(rows)
  parts = [tf.reshape(row, [cut.processes, -1]) for row in rows]
  return tf.concat(parts, axis=1)[:, : cut.elements_per_word * cut.width]
