"""The messages that workers send in a round, and what they receive."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad import aliases
from terngrad.codec.stages import float_words
from terngrad.codec.stages import packing as packings
from terngrad.codec.stages import wire

# Values of `Message.combine`.
SUM, GATHER, SCATTER = 'sum', 'gather', 'scatter'

AnyPacking = wire.Packing | wire.VariablePacking | wire.CompositePacking


class Message(NamedTuple):
  """The declaration of one int32 tensor that each worker sends in a round.

  Attributes:
    combine: SUM: receivers need only the sum over the workers. Integers may be
      added in any order; floats are added as float32 in the order of the
      workers. GATHER: receivers need the words of every worker. SCATTER: the
      words consist of one equal part per worker, and each worker needs its part
      from every worker.
    num_words: words of one worker's message, including words that are not sent.
    num_elements: elements to sum; 0 for GATHER and SCATTER.
    packing: for SUM, how words hold the elements: `wire.Packing` or
      `wire.VariablePacking`. For GATHER and SCATTER, what counts the words in
      use, or None.
    levels: for SUM of integers, their largest magnitude; None for floats.
  """

  combine: str
  num_words: int
  num_elements: int = 0
  packing: AnyPacking | None = None
  levels: int | None = None

  @property
  def sum_packing(self) -> wire.Packing | wire.VariablePacking:
    """`packing` of a message that can be summed.

    Raises:
      ValueError: the message cannot be summed.
    """
    if isinstance(self.packing, wire.Packing | wire.VariablePacking):
      return self.packing
    raise ValueError(
      'message: expected one whose elements can be summed, received '
      f'{self.combine} of {self.num_words} words. Read it as Payloads.'
    )

  @property
  def sum_levels(self) -> int:
    """`levels` of a sum of integers.

    Raises:
      ValueError: the message does not contain integers to sum.
    """
    if self.levels is None:
      raise ValueError(
        f'message: expected integers to sum, received {self.combine} of '
        f'{self.num_elements} floats. Add them as float32.'
      )
    return self.levels

  def packing_of_sums(self, num_workers: int) -> wire.Packing:
    """Returns the packing of sums of the codes of this many workers."""
    return packings.sums(num_workers * self.sum_levels)

  def dtype_of_sums(self, num_workers: int) -> tf.DType:
    """Returns the narrowest dtype that holds a sum of codes."""
    return tf.int8 if num_workers * self.sum_levels < 128 else tf.int32

  def unpacked_sums(
    self, words: tf.Tensor, num_workers: int
  ) -> list[tf.Tensor]:
    """Returns the planes of sums of codes, from words of `packing_of_sums`.

    The planes are concatenated outside of compiled code, because XLA compiles
    the concatenation to a branch per element.
    """
    packing = self.packing_of_sums(num_workers)
    dtype = self.dtype_of_sums(num_workers)

    # A traced step calls this once per device.
    @tf.function(jit_compile=True)
    def unpack(words: tf.Tensor) -> list[tf.Tensor]:
      return [tf.cast(plane, dtype) for plane in packing.unpack(words)]

    return unpack(words)

  def sent_words(self, words: tf.Tensor) -> tf.Tensor:
    """Returns how many words of each message int32 [..., num_words] are sent.

    Returns:
      int32 [...].
    """
    if self.packing is None:
      return wire.all_words(words)
    return self.packing.sent_words(words)

  @property
  def expected_words(self) -> float:
    """The mean number of words that are sent; see `coded.Code.bits`."""
    if self.packing is None or not self.num_elements:
      return self.num_words
    return self.packing.expected_words(self.num_elements)


def float_sum(num_elements: int) -> Message:
  """Returns a message of this many float32 elements to sum."""
  return code_sum(float_words.float32_words(), num_elements)


def code_sum(
  packing: wire.Packing | wire.VariablePacking,
  num_elements: int,
  levels: int | None = None,
) -> Message:
  """Returns a message of elements to sum.

  Args:
    packing: of the elements.
    num_elements: how many there are.
    levels: largest magnitude of integers; None for floats.
  """
  words = packing.num_words(num_elements)
  return Message(SUM, words, num_elements, packing, levels)


def gathered(num_words: int, packing: AnyPacking | None = None) -> Message:
  """Returns a message of this many words that all workers get from all."""
  return Message(GATHER, num_words, packing=packing)


class Piece(NamedTuple):
  """A range of words of all workers' messages.

  Attributes:
    first: index of the first word in the message.
    parts: m tensors int32 [n / m, words], one per device. Row r // m of part
      r % m belongs to worker r. The first parts may have one row more.
  """

  first: int
  parts: list[tf.Tensor]


def stack_by_worker(parts: Sequence[tf.Tensor]) -> tf.Tensor:
  """Returns int32 [n, w] with row r of worker r, from `Piece.parts`."""
  if len(parts) == 1:
    return parts[0]
  total = sum(part.shape[0] for part in parts)
  orders = [list(range(i, total, len(parts))) for i in range(len(parts))]
  return tf.dynamic_stitch(orders, parts)


class Payloads(NamedTuple):
  """One message of every worker.

  Attributes:
    all_pieces: consecutive pieces of the received words.
    start: index of the message's first word in them.
    stop: index after the message's last word.
  """

  all_pieces: list[Piece]
  start: int
  stop: int

  @property
  def pieces(self) -> list[Piece]:
    """The words of this message only, one `Piece` or more."""
    found = []
    for piece in self.all_pieces:
      width = piece.parts[0].shape[1]
      begin = max(piece.first, self.start)
      end = min(piece.first + width, self.stop)
      if begin < end:
        parts = piece.parts
        if end - begin < width:
          columns = slice(begin - piece.first, end - piece.first)
          parts = [part[:, columns] for part in parts]
        found.append(Piece(begin - self.start, parts))
    return found or [Piece(0, [p[:, :0] for p in self.all_pieces[0].parts])]

  @property
  def parts(self) -> list[tf.Tensor]:
    """The `Piece.parts` of the whole message."""
    columns = zip(*(piece.parts for piece in self.pieces), strict=True)
    return [wire.concat(column, axis=1) for column in columns]

  def sum(self, message: Message) -> tf.Tensor:
    """Returns the sum as `Sum.sum` does, for a message that can be summed."""
    return wire.sum_planes(
      message.sum_packing, self.parts, message.num_elements
    )


def payloads(
  messages: Sequence[Message], pieces: list[Piece]
) -> list['Received']:
  """Splits received words into messages.

  Args:
    messages: in the order of their words.
    pieces: consecutive pieces of the words of all messages.

  Returns:
    One `Payloads`, or `Scattered`, per message.
  """
  stops = itertools.accumulate(message.num_words for message in messages)
  found: list[Received] = []
  for message, stop in zip(messages, stops, strict=True):
    words = Payloads(pieces, stop - message.num_words, stop)
    scattered = message.combine == SCATTER
    found.append(Scattered.from_payloads(words) if scattered else words)
  return found


@aliases.renamed_attributes(of='for_worker')
class Scattered(NamedTuple):
  """The parts of all workers' messages that belong to the local workers.

  Attributes:
    rows: int32 [N, k, words of a part], row r from worker r.
    first: the worker that the first of the k parts belongs to.
  """

  rows: tf.Tensor
  first: int = 0

  @classmethod
  def from_payloads(cls, words: Payloads) -> 'Scattered':
    """Creates all parts from `Payloads` of whole messages."""
    rows = stack_by_worker(words.parts)
    count = rows.shape[0]
    return cls(tf.reshape(rows, [count, count, -1]))

  def for_worker(self, worker: tf.Tensor) -> Payloads:
    """Returns the `Payloads` that local worker `worker`, int32 [], received."""
    rows = tf.gather(self.rows, worker - self.first, axis=1)
    return Payloads([Piece(0, [rows])], 0, rows.shape[1])

  def sum(self, message: Message) -> tf.Tensor:
    """Raises ValueError: no device has all parts."""
    raise ValueError(
      f'Scattered: expected a message to sum, received {message.combine} of '
      f'{message.num_words} words. Call `for_worker` for parts of one worker.'
    )


class Sum(NamedTuple):
  """The sum of a message over all workers.

  Attributes:
    pieces: consecutive int8, int32 or float32 [elements]; together they have
      num_elements or more.
  """

  pieces: list[tf.Tensor]

  @property
  def total(self) -> tf.Tensor:
    """All pieces as one tensor."""
    return wire.concat(self.pieces)

  def sum(self, message: Message) -> tf.Tensor:
    """Returns the sum as float32 or int32, [num_elements or more]."""
    total = self.total
    return total if total.dtype.is_floating else tf.cast(total, tf.int32)


Received = Payloads | Sum | Scattered
# For each round, one entry per message.
ReceivedRounds = Sequence[Sequence[Received]]
Rounds = Sequence[Sequence[Message]]


def received_by(
  worker: tf.Tensor, received: ReceivedRounds
) -> list[list[Payloads | Sum]]:
  """Returns what one worker has of all rounds.

  Args:
    worker: int32 [].
    received: for each round a list of `Payloads`, `Sum` or `Scattered`.

  Returns:
    The same, with the worker's `Payloads` in place of `Scattered`.
  """
  return [
    [m.for_worker(worker) if isinstance(m, Scattered) else m for m in messages]
    for messages in received
  ]
