"""The gather algorithm: all processes receive every word of a message.

Messages of fixed length are sent together, as one tensor in pieces. Of messages
of variable length only the used words are sent. All processes must send the
same number of words. They first agree on the largest number and round it up to
one of a few `lengths`, because the runtime keeps memory for each length.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import wire
from terngrad.exchange import group as groups

# Lengths from 1/16 of the capacity up, in steps of half a percent. The runtime
# keeps 1.7 kB for each length that was sent, for each of at most 16 pieces.
_STEP = 1.005
_MOST_LENGTHS = 557
# Smallest message, in words, for which agreeing on a length saves time: a fifth
# of it, 6 kB, takes as long as a round trip, 50 us at 1 Gbit/s.
_LEAST_AGREED = 2**13


class Gathered(NamedTuple):
  """The words that `move` gathered.

  Attributes:
    fixed: float32 [workers, columns of a piece], pieces of all messages of
      fixed length.
    variable: for each message of variable length a list of float32 [workers,
      columns of a piece], pieces of its first words.
  """

  fixed: list[tf.Tensor]
  variable: list[list[tf.Tensor]]


def varies(message: methods.Message) -> bool:
  """Returns True if only the used words of a message may be sent."""
  is_variable = isinstance(message.packing, wire.VariablePacking)
  return is_variable and message.num_words >= _LEAST_AGREED


def lengths(capacity: int) -> list[int]:
  """Returns how many words of a variable-length message may be sent.

  Args:
    capacity: words of the message, >= 1.

  Returns:
    Numbers in ascending order; the last one is `capacity`.
  """
  return sorted({math.ceil(capacity * _STEP**-k) for k in range(_MOST_LENGTHS)})


def expected_words(message: methods.Message) -> float:
  """Returns how many words of a worker's message are sent on average."""
  if not varies(message):
    return message.num_words
  possible = lengths(message.num_words)
  index = int(np.searchsorted(possible, message.expected_words))
  return possible[min(index, len(possible) - 1)]


def move(
  group: groups.Group, messages: Sequence[methods.Message], rows: tf.Tensor
) -> Gathered:
  """Gathers messages; all processes must call it.

  Args:
    group: of the processes.
    messages: of a round.
    rows: int32 [workers of this process, words of all messages].
  """
  parts = groups.columns(rows, [message.num_words for message in messages])
  pairs = list(zip(messages, parts, strict=True))
  fixed = [part for message, part in pairs if not varies(message)]
  variable = [pair for pair in pairs if varies(pair[0])]
  pieces: list[tf.Tensor] = []
  if not variable:
    pieces = group.all_gather_pieces(rows)
  elif fixed:
    pieces = group.all_gather_pieces(wire.concat(fixed, axis=1))
  return Gathered(pieces, _move_used(group, variable) if variable else [])


def _move_used(
  group: groups.Group, pairs: Sequence[tuple[methods.Message, tf.Tensor]]
) -> list[list[tf.Tensor]]:
  """Gathers the used words of variable-length messages: `Gathered.variable`.

  Args:
    group: of the processes.
    pairs: (message, float32 [workers of this process, its words]).
  """
  used = [tf.reduce_max(message.sent_words(part)) for message, part in pairs]
  largest = tf.reduce_max(group.all_gather(tf.stack(used)[tf.newaxis]), axis=0)
  found = []
  for number, (message, part) in enumerate(pairs):
    possible = lengths(message.num_words)
    index = tf.searchsorted(possible, largest[number : number + 1])[0]
    index = tf.minimum(index, len(possible) - 1)
    found.append(group.all_gather_first(part, index, possible))
  return found


def receive(
  messages: Sequence[methods.Message], gathered: Gathered
) -> list[methods.Received]:
  """Converts gathered words to received messages on a device.

  Args:
    messages: as in `move`.
    gathered: the words, on the device.

  Returns:
    One per message.
  """
  starts = methods.starts_of([piece.shape[1] for piece in gathered.fixed])
  parts = [[piece] for piece in gathered.fixed]
  pieces = list(map(methods.Piece, starts, parts))
  fixed = [message for message in messages if not varies(message)]
  whole, first = iter(methods.payloads(fixed, pieces)), iter(gathered.variable)
  return [
    _pad(message, next(first)) if varies(message) else next(whole)
    for message in messages
  ]


def _pad(
  message: methods.Message, pieces: Sequence[tf.Tensor]
) -> methods.Payloads:
  """Pads the first words of all workers to whole payloads."""
  workers = pieces[0].shape[0]
  missing = message.num_words - tf.add_n([tf.shape(p)[1] for p in pieces])
  zeros = tf.zeros([workers, missing], pieces[0].dtype)
  words = tf.concat([*pieces, zeros], axis=1)
  words = tf.ensure_shape(words, [workers, message.num_words])
  return methods.Payloads([methods.Piece(0, [words])], 0, message.num_words)
