"""What workers send each other in a round, and what arrives of it."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import float_words
from terngrad.codec.stages import packing as packings
from terngrad.codec.stages import wire

# How messages are combined.
SUM, GATHER, SCATTER = 'sum', 'gather', 'scatter'

AnyPacking = wire.Packing | wire.VariablePacking | wire.CompositePacking


class Message(NamedTuple):
  """One of the tensors that a worker sends in a round, as int32 words.

  Attributes:
    combine: SUM: receivers need the sum over the workers alone. Integers may be
      added anywhere and in any way; floats are added as float32 in the order of
      the workers. GATHER: receivers need the words of every worker. SCATTER:
      words are as many equal parts as there are workers, and each worker needs
      its own part of every worker's.
    num_words: of a worker's message, sent or not.
    num_elements: how many numbers are summed; 0 for others than SUM.
    packing: for SUM, `wire.Packing` or `wire.VariablePacking`: how words hold
      the numbers. For others, None, or what counts the words that are used.
    levels: for SUM of integers the largest magnitude; None for floats.
  """

  combine: str
  num_words: int
  num_elements: int = 0
  packing: AnyPacking | None = None
  levels: int | None = None

  @property
  def sum_packing(self) -> wire.Packing | wire.VariablePacking:
    """`packing` of a message that may be summed.

    Raises:
      ValueError: it may not.
    """
    if isinstance(self.packing, wire.Packing | wire.VariablePacking):
      return self.packing
    raise ValueError(
      'message: expected one whose packing holds numbers that add, received '
      f'{self.combine} of {self.num_words} words. Read it as Payloads.'
    )

  @property
  def sum_levels(self) -> int:
    """`levels` of a sum of integers.

    Raises:
      ValueError: the message is of others.
    """
    if self.levels is None:
      raise ValueError(
        f'message: expected integers to sum, received {self.combine} of '
        f'{self.num_elements} floats. Add them as they are.'
      )
    return self.levels

  def packing_of_sums(self, num_workers: int) -> wire.Packing:
    """The `wire.Packing` of sums of the codes of so many workers."""
    return packings.sums(num_workers * self.sum_levels)

  def dtype_of_sums(self, num_workers: int) -> tf.DType:
    """The narrowest type that holds a sum of codes."""
    return tf.int8 if num_workers * self.sum_levels < 128 else tf.int32

  def unpacked_sums(
    self, words: tf.Tensor, num_workers: int
  ) -> list[tf.Tensor]:
    """The planes of sums of codes, from words of `packing_of_sums`.

    They are joined outside of compiled code, which branches at every element
    of it.
    """
    packing = self.packing_of_sums(num_workers)
    small = self.dtype_of_sums(num_workers)

    # Where a traced step calls it, each for its own device.
    @tf.function(jit_compile=True)
    def unpack(words: tf.Tensor) -> list[tf.Tensor]:
      return [tf.cast(plane, small) for plane in packing.unpack(words)]

    return unpack(words)

  def sent_words(self, words: tf.Tensor) -> tf.Tensor:
    """int32 [...]: how many words of int32 [..., num_words] are sent."""
    if self.packing is None:
      return wire.all_words(words)
    return self.packing.sent_words(words)

  @property
  def expected_words(self) -> float:
    """Words that are sent on average; see `coded.Code.bits`."""
    if self.packing is None or not self.num_elements:
      return self.num_words
    return self.packing.expected_words(self.num_elements)


def float_sum(num_elements: int) -> Message:
  """The `Message` of so many float32, which are summed."""
  return code_sum(float_words.float32_words(), num_elements)


def code_sum(
  packing: wire.Packing | wire.VariablePacking,
  num_elements: int,
  levels: int | None = None,
) -> Message:
  """The `Message` of integers, which are summed.

  Args:
    packing: of them.
    num_elements: how many.
    levels: their largest magnitude; None for floats.
  """
  words = packing.num_words(num_elements)
  return Message(SUM, words, num_elements, packing, levels)


def gathered(num_words: int, packing: AnyPacking | None = None) -> Message:
  """The `Message` of so many words that all workers get from all."""
  return Message(GATHER, num_words, packing=packing)


class Piece(NamedTuple):
  """Words of all workers' messages.

  Attributes:
    first: how many words of a message stand before them.
    parts: list of m int32 [n / m, words]: worker r's words are row r // m of
      part r % m, as they come from m devices; the first parts may have one row
      more.
  """

  first: int
  parts: list[tf.Tensor]


def rows_in_order(parts: Sequence[tf.Tensor]) -> tf.Tensor:
  """int32 [n, w], row r of worker r, from parts; see `Piece`."""
  if len(parts) == 1:
    return parts[0]
  total = sum(part.shape[0] for part in parts)
  orders = [list(range(i, total, len(parts))) for i in range(len(parts))]
  return tf.dynamic_stitch(orders, parts)


class Payloads(NamedTuple):
  """A message of every worker.

  Attributes:
    travelled: list of `Piece`, one after the other, of what travelled.
    start: first word of the message in that.
    stop: word after its last.
  """

  travelled: list[Piece]
  start: int
  stop: int

  @property
  def pieces(self) -> list[Piece]:
    """The message's own words, a list of one `Piece` or more."""
    found = []
    for piece in self.travelled:
      width = piece.parts[0].shape[1]
      begin = max(piece.first, self.start)
      end = min(piece.first + width, self.stop)
      if begin < end:
        parts = piece.parts
        if end - begin < width:
          columns = slice(begin - piece.first, end - piece.first)
          parts = [part[:, columns] for part in parts]
        found.append(Piece(begin - self.start, parts))
    return found or [Piece(0, [p[:, :0] for p in self.travelled[0].parts])]

  @property
  def parts(self) -> list[tf.Tensor]:
    """The `Piece.parts` of the whole message."""
    columns = zip(*(piece.parts for piece in self.pieces), strict=True)
    return [wire.concat(column, axis=1) for column in columns]

  def sum(self, message: Message) -> tf.Tensor:
    """What `Sum.sum` would be, for a message that may be summed."""
    return wire.sum_planes(
      message.sum_packing, self.parts, message.num_elements
    )


def payloads(
  messages: Sequence[Message], travelled: list[Piece]
) -> list['Received']:
  """The messages in what travelled as one tensor.

  Args:
    messages: list of `Message`, in the order of their words.
    travelled: list of `Piece`, one after the other, of all their words.

  Returns:
    List of `Payloads`, or `Scattered`, one a message.
  """
  stops = itertools.accumulate(message.num_words for message in messages)
  found: list[Received] = []
  for message, stop in zip(messages, stops, strict=True):
    words = Payloads(travelled, stop - message.num_words, stop)
    scattered = message.combine == SCATTER
    found.append(Scattered.of_all(words) if scattered else words)
  return found


class Scattered(NamedTuple):
  """The parts of all workers' messages that are for the workers here.

  Attributes:
    rows: int32 [N, k, words of a part], row r of worker r.
    first: the worker that the first of the k parts is for.
  """

  rows: tf.Tensor
  first: int = 0

  @classmethod
  def of_all(cls, words: Payloads) -> 'Scattered':
    """All parts, of `Payloads` of whole messages."""
    rows = rows_in_order(words.parts)
    count = rows.shape[0]
    return cls(tf.reshape(rows, [count, count, -1]))

  def of(self, worker: tf.Tensor) -> Payloads:
    """The `Payloads` that a worker here received; its number is int32 []."""
    rows = tf.gather(self.rows, worker - self.first, axis=1)
    return Payloads([Piece(0, [rows])], 0, rows.shape[1])

  def sum(self, message: Message) -> tf.Tensor:
    """Raises ValueError: no device has all parts."""
    raise ValueError(
      f'Scattered: expected a message to sum, received {message.combine} of '
      f'{message.num_words} words. Read the parts of a worker by `of`.'
    )


class Sum(NamedTuple):
  """The sum of a message over all workers.

  Attributes:
    pieces: list of int8, int32 or float32 [elements], one after the other, in
      all num_elements or more.
  """

  pieces: list[tf.Tensor]

  @property
  def total(self) -> tf.Tensor:
    """All pieces as one tensor."""
    return wire.concat(self.pieces)

  def sum(self, message: Message) -> tf.Tensor:
    """The sum as float32, or int32; [num_elements or more]."""
    total = self.total
    return total if total.dtype.is_floating else tf.cast(total, tf.int32)


Received = Payloads | Sum | Scattered
# For each round one a message.
Arrived = Sequence[Sequence[Received]]
Rounds = Sequence[Sequence[Message]]


def received_by(
  worker: tf.Tensor, received: Arrived
) -> list[list[Payloads | Sum]]:
  """What a worker has of all rounds: of what was scattered its own part.

  Args:
    worker: int32 [].
    received: for each round a list of `Payloads`, `Sum` or `Scattered`.

  Returns:
    The same, without `Scattered`.
  """
  return [
    [one.of(worker) if isinstance(one, Scattered) else one for one in arrived]
    for arrived in received
  ]
