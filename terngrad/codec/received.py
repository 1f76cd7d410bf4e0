"""What workers receive of the messages of all workers, by an exchange.

The words and sums that an exchange moved may be float32 in place of int32, see
`stages.transport`. Methods read int32.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad import aliases
from terngrad.codec import messages as messages_lib
from terngrad.codec.stages import transport
from terngrad.codec.stages import wire


class Piece(NamedTuple):
  """A range of words of all workers' messages.

  Attributes:
    first: index of the first word in the message.
    parts: m tensors [n / m, words], one per device: int32, or float32 as in
      `transport`. Row r // m of part r % m belongs to worker r. The first parts
      may have one row more.
  """

  first: int
  parts: list[tf.Tensor]


def stack_by_worker(parts: Sequence[tf.Tensor]) -> tf.Tensor:
  """Returns one tensor [n, w] with row r of worker r, from `Piece.parts`."""
  if len(parts) == 1:
    return parts[0]
  total = sum(part.shape[0] for part in parts)
  orders = [list(range(i, total, len(parts))) for i in range(len(parts))]
  return tf.dynamic_stitch(orders, parts)


class Payloads(NamedTuple):
  """One message of every worker, read as int32 words.

  Attributes:
    all_pieces: consecutive pieces of the received words, int32 or float32.
    start: index of the message's first word in them.
    stop: index after the message's last word.
  """

  all_pieces: list[Piece]
  start: int
  stop: int

  @property
  def pieces(self) -> list[Piece]:
    """The int32 words of this message only, one `Piece` or more."""
    return [
      Piece(first, list(map(transport.to_int32, parts)))
      for first, parts in self.moved_pieces
    ]

  @property
  def moved_pieces(self) -> list[Piece]:
    """`pieces` in the data type in which they were received."""
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
    """The `Piece.parts` of the whole message, int32."""
    return list(map(transport.to_int32, self.moved_parts))

  @property
  def moved_parts(self) -> list[tf.Tensor]:
    """`parts` in the data type in which they were received."""
    columns = zip(*(piece.parts for piece in self.moved_pieces), strict=True)
    return [wire.concat(column, axis=1) for column in columns]

  def sum(self, message: messages_lib.Message) -> tf.Tensor:
    """Returns the sum as `Sum.sum` does, for a message that can be summed."""
    return wire.sum_planes(
      message.sum_packing, self.moved_parts, message.num_elements
    )


def payloads(
  messages: Sequence[messages_lib.Message], pieces: list[Piece]
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
    scattered = message.combine == messages_lib.SCATTER
    found.append(Scattered.from_payloads(words) if scattered else words)
  return found


@aliases.renamed_attributes(of='for_worker')
class Scattered(NamedTuple):
  """The parts of all workers' messages that belong to the local workers.

  Attributes:
    rows: [N, k, words of a part], row r from worker r; int32 or float32, as in
      `Piece.parts`.
    first: the worker that the first of the k parts belongs to.
  """

  rows: tf.Tensor
  first: int = 0

  @classmethod
  def from_payloads(cls, words: Payloads) -> 'Scattered':
    """Creates all parts from `Payloads` of whole messages."""
    rows = stack_by_worker(words.moved_parts)
    count = rows.shape[0]
    return cls(tf.reshape(rows, [count, count, -1]))

  def for_worker(self, worker: tf.Tensor) -> Payloads:
    """Returns the `Payloads` that local worker `worker`, int32 [], received."""
    rows = tf.gather(self.rows, worker - self.first, axis=1)
    return Payloads([Piece(0, [rows])], 0, rows.shape[1])

  def sum(self, message: messages_lib.Message) -> tf.Tensor:
    """Raises ValueError: no device has all parts."""
    raise ValueError(
      f'Scattered: expected a message to sum, received {message.combine} of '
      f'{message.num_words} words. Call `for_worker` for parts of one worker.'
    )


class Sum(NamedTuple):
  """The sum of a message over all workers.

  Attributes:
    all_pieces: consecutive int8, int32 or float32 [elements]; together they
      have num_elements or more.
    integers: True if float32 pieces are int32 sums, see `transport`.
  """

  all_pieces: list[tf.Tensor]
  integers: bool = False

  @property
  def pieces(self) -> list[tf.Tensor]:
    """The pieces, of their values' type."""
    return list(map(self._value, self.all_pieces))

  @property
  def total(self) -> tf.Tensor:
    """All pieces as one tensor."""
    return self._value(wire.concat(self.all_pieces))

  def _value(self, piece: tf.Tensor) -> tf.Tensor:
    return transport.to_int32(piece) if self.integers else piece

  def sum(self, message: messages_lib.Message) -> tf.Tensor:
    """Returns the sum as float32 or int32, [num_elements or more]."""
    total = self.total
    return total if total.dtype.is_floating else tf.cast(total, tf.int32)


Received = Payloads | Sum | Scattered
# For each round, one entry per message.
ReceivedRounds = Sequence[Sequence[Received]]


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
