"""Sums of messages that parameter servers compute and workers pull.

A server adds the messages that workers pushed and packs the sum again. Codes of
N workers have 2 N + 1 levels and are sent as `packing.sums(N)`, 32 / 13 bits an
element for N = 2. Sums of floats are sent as float32. GATHER and SCATTER
messages are forwarded unchanged.

The words of a round are split among the servers. A packing of fixed length can
be split at any word, because a range of words is the same range of every plane.
Forwarded messages can be split at any word too. A sum of words of variable
length is computed by one server.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import used_words
from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.codec.stages import wire

# A traced step calls these once per device.
_compiled = tracing.compiled


class MessageRange(NamedTuple):
  """A range of words of one message, and the size of its sum.

  Attributes:
    message: the message.
    message_index: index of the message in its round.
    start: index of the first word in the message.
    stop: index after the last word.
    num_planes: rows of the sum, or of the forwarded words.
    width: elements in a row.
    num_words: of the packed sum, or of the forwarded words.
  """

  message: methods.Message
  message_index: int
  start: int
  stop: int
  num_planes: int
  width: int
  num_words: int


class Totals:
  """Splits the messages of a round among servers, adds and unpacks them.

  Attributes:
    ranges: for each server (first word, word after the last) of the workers'
      words that it receives. A range is empty if there are more servers than
      words.
    num_words: for each server the words that a worker pulls.
  """

  def __init__(
    self,
    messages: Sequence[methods.Message],
    num_workers: int,
    num_servers: int,
  ) -> None:
    """Splits the messages among the servers.

    Args:
      messages: in the order of their words.
      num_workers: number of senders, >= 1.
      num_servers: >= 1.
    """
    self._messages, self._num_workers = messages, num_workers
    self.ranges = _ranges(messages, num_servers)
    self._pieces = [_pieces(messages, num_workers, *r) for r in self.ranges]
    self.num_words = [sum(p.num_words for p in some) for some in self._pieces]

  def bits(self) -> int:
    """Returns the bits that a worker pulls."""
    return 32 * sum(self.num_words)

  def select_words(self, server: int, words: tf.Tensor) -> list[tf.Tensor]:
    """Selects the used words that a device sends to a server.

    Args:
      server: index of the server.
      words: float32 [n, words of the round], of the device's workers, as in
        `transport`; or int32.

    Returns:
      List of float32 [n, any], one per piece of the server; one tensor for all
      pieces if all lengths are fixed.
    """
    pieces, words = self._pieces[server], transport.to_float32(words)
    if not any(used_words.varies(piece.message) for piece in pieces):
      return [words[:, slice(*self.ranges[server])]]
    sizes = [message.num_words for message in self._messages]
    messages = tf.split(words, sizes, axis=1)
    return [
      used_words.trim(p.message, messages[p.message_index], p.start, p.stop)
      for p in pieces
    ]

  def add(self, server: int, parts: Sequence[Sequence[tf.Tensor]]) -> tf.Tensor:
    """Adds the pushed words of all devices on a server.

    Args:
      server: index of the server.
      parts: for each device the result of `select_words`; the rows are in the
        order of `method.Piece`.

    Returns:
      float32 [num_words[server]], words or sums, which workers pull.
    """
    pieces = self._pieces[server]
    columns = zip(*(_words_of(pieces, part) for part in parts), strict=True)
    words = [
      _add(piece, list(column), self._num_workers)
      for piece, column in zip(pieces, columns, strict=True)
    ]
    return wire.concat(words)

  def unpack(self, pulled: Sequence[tf.Tensor]) -> list[methods.Received]:
    """Unpacks the pulled words into messages.

    Args:
      pulled: for each server with a nonempty range float32 [num_words], from
        `add`.

    Returns:
      One `method.Payloads`, `Sum` or `Scattered` per message.
    """
    found: list[list[tuple[MessageRange, tf.Tensor]]] = [
      [] for _ in self._messages
    ]
    for pieces, words in zip(filter(None, self._pieces), pulled, strict=True):
      parts = tf.split(words, [piece.num_words for piece in pieces])
      for piece, part in zip(pieces, parts, strict=True):
        found[piece.message_index].append((piece, part))
    return [
      _unpack_message(message, some, self._num_workers)
      for message, some in zip(self._messages, found, strict=True)
    ]


def _ranges(
  messages: Sequence[methods.Message], num_servers: int
) -> list[tuple[int, int]]:
  """Returns nearly equal word ranges; sums of variable length stay whole."""
  sizes = [message.num_words for message in messages]
  starts, end = methods.starts_of(sizes), sum(sizes)
  cuts = [0]
  for server in range(1, num_servers):
    ideal = server * end // num_servers
    for message, start in zip(messages, starts, strict=True):
      stop = start + message.num_words
      if message.combine != methods.SUM or not start < ideal < stop:
        continue
      if isinstance(message.packing, wire.Packing):
        words = message.packing.word_bits // 32
        ideal = start + (ideal - start) // words * words
      else:
        ideal = start if ideal - start < stop - ideal else stop
    cuts.append(ideal)
  return list(zip(cuts, [*cuts[1:], end], strict=True))


def _pieces(
  messages: Sequence[methods.Message], num_workers: int, begin: int, end: int
) -> list[MessageRange]:
  """Returns the pieces of a range, in the order of the words."""
  found = []
  offsets = methods.starts_of([message.num_words for message in messages])
  for index, (message, offset) in enumerate(
    zip(messages, offsets, strict=True)
  ):
    start = max(begin - offset, 0)
    stop = min(end - offset, message.num_words)
    if start < stop:
      sizes = _sizes(message, stop - start, num_workers)
      found.append(MessageRange(message, index, start, stop, *sizes))
  return found


def _sizes(
  message: methods.Message, count: int, num_workers: int
) -> tuple[int, int, int]:
  """Returns (num_planes, width, num_words) of a range of `count` words."""
  if message.combine != methods.SUM:
    return num_workers, count, num_workers * count
  packing = message.sum_packing
  if isinstance(packing, wire.Packing):
    width = count * 32 // packing.word_bits
  else:
    width = packing.width(message.num_elements)
  num_planes = packing.elements_per_word
  size = num_planes * width
  if message.levels is not None:
    size = message.packing_of_sums(num_workers).num_words(size)
  return num_planes, width, size


def _words_of(
  pieces: Sequence[MessageRange], pushed: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
  """Returns the words of each piece, [n, words], from `select_words`."""
  sizes = [piece.stop - piece.start for piece in pieces]
  if len(pushed) == len(pieces):
    return [
      used_words.restore(words, size)
      for words, size in zip(pushed, sizes, strict=True)
    ]
  (words,) = pushed
  ends = itertools.accumulate(sizes)
  return [
    words[:, end - size : end] for size, end in zip(sizes, ends, strict=True)
  ]


def _add(
  piece: MessageRange, parts: list[tf.Tensor], num_workers: int
) -> tf.Tensor:
  """Returns the words that are pulled for a piece.

  Args:
    piece: the piece.
    parts: for each device float32 [n, words].
    num_workers: N.
  """
  message = piece.message
  if message.combine != methods.SUM:
    return tf.reshape(methods.stack_by_worker(parts), [-1])
  size = piece.num_planes * piece.width

  @_compiled
  def add(parts: list[tf.Tensor]) -> tf.Tensor:
    sums = wire.sum_planes(message.sum_packing, parts, size)
    if message.levels is None:
      return sums
    return tf.cast(sums, message.dtype_of_sums(num_workers))

  sums = add(parts)
  if message.levels is None:
    return sums
  target = message.packing_of_sums(num_workers)
  missing = target.width(size) * target.elements_per_word - size
  padded = tf.pad(sums, [[0, missing]])

  @_compiled
  def pack(sums: tf.Tensor) -> tf.Tensor:
    rows = tf.reshape(tf.cast(sums, tf.int32), [target.elements_per_word, -1])
    return transport.to_float32(target.pack(tf.unstack(rows)))

  return pack(padded)


def _unpack_message(
  message: methods.Message,
  some: Sequence[tuple[MessageRange, tf.Tensor]],
  num_workers: int,
) -> methods.Received:
  """Returns a message from its pieces and their pulled words."""
  if message.combine != methods.SUM:
    pieces = [
      methods.Piece(piece.start, [tf.reshape(words, [num_workers, -1])])
      for piece, words in some
    ]
    (words,) = methods.payloads([message], pieces)
    return words
  rows = [_unpack(piece, words, num_workers) for piece, words in some]
  sums = tf.reshape(wire.concat(rows, axis=1), [-1])
  return methods.Sum([sums], integers=message.levels is not None)


def _unpack(
  piece: MessageRange, words: tf.Tensor, num_workers: int
) -> tf.Tensor:
  """Returns the sum of a piece, int8 or float32 [num_planes, width]."""
  message = piece.message
  shape = [piece.num_planes, piece.width]
  if message.levels is None:
    return tf.reshape(words, shape)
  sums = wire.join(message.unpacked_sums(words, num_workers))
  return tf.reshape(sums[: shape[0] * shape[1]], shape)
