"""Messages that all processes get from all, word for word.

Those of a fixed length travel together, as one tensor in pieces. Of those whose
length varies only what is used travels. All processes must send the same number
of words, so they agree on the largest first, and round it up to one of some
`lengths`: the runtime keeps something for every length that it has seen.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import wire
from terngrad.exchange import group as groups

# From 1/16 of the capacity up in steps of half a percent. The runtime keeps
# 1.7 kB for each that it has seen, and for each of at most 16 pieces.
_STEP = 1.005
_MOST_LENGTHS = 557
# Words of a message for which it pays to agree first: a fifth of them, 6 kB,
# takes as long as a round trip, 50 us at 1 Gbit/s.
_LEAST_AGREED = 2**13


class Gathered(NamedTuple):
  """What `move` moved.

  Attributes:
    together: list of int32 [workers, columns of a piece], of all messages of
      fixed length.
    apart: for each of the other messages a list of int32 [workers, columns of
      a piece], of its first words.
  """

  together: list[tf.Tensor]
  apart: list[list[tf.Tensor]]


def varies(message: methods.Message) -> bool:
  """Whether less than the whole message may travel."""
  is_variable = isinstance(message.packing, wire.VariablePacking)
  return is_variable and message.num_words >= _LEAST_AGREED


def lengths(capacity: int) -> list[int]:
  """The numbers of words that may travel of a message of varying length.

  Args:
    capacity: words of the message, >= 1.

  Returns:
    In ascending order, the last is `capacity`.
  """
  return sorted({math.ceil(capacity * _STEP**-k) for k in range(_MOST_LENGTHS)})


def expected_words(message: methods.Message) -> float:
  """Words that a worker's message is expected to take on its way."""
  if not varies(message):
    return message.num_words
  possible = lengths(message.num_words)
  index = int(np.searchsorted(possible, message.expected_words))
  return possible[min(index, len(possible) - 1)]


def move(
  group: groups.Group, messages: Sequence[methods.Message], rows: tf.Tensor
) -> Gathered:
  """Gathers messages; called by all processes.

  Args:
    group: of the processes.
    messages: of a round.
    rows: int32 [workers of this process, words of all messages].
  """
  parts = groups.columns(rows, [message.num_words for message in messages])
  pairs = list(zip(messages, parts, strict=True))
  fixed = [part for message, part in pairs if not varies(message)]
  variable = [pair for pair in pairs if varies(pair[0])]
  together: list[tf.Tensor] = []
  if not variable:
    together = group.all_gather_pieces(rows)
  elif fixed:
    together = group.all_gather_pieces(wire.concat(fixed, axis=1))
  return Gathered(together, _move_used(group, variable) if variable else [])


def _move_used(
  group: groups.Group, pairs: Sequence[tuple[methods.Message, tf.Tensor]]
) -> list[list[tf.Tensor]]:
  """`Gathered.apart`, of pairs of a message and int32 [own, its words]."""
  used = [tf.reduce_max(message.sent_words(part)) for message, part in pairs]
  largest = tf.reduce_max(group.all_gather(tf.stack(used)[tf.newaxis]), axis=0)
  found = []
  for number, (message, part) in enumerate(pairs):
    possible = lengths(message.num_words)
    index = tf.searchsorted(possible, largest[number : number + 1])[0]
    index = tf.minimum(index, len(possible) - 1)
    found.append(group.all_gather_first(part, index, possible))
  return found


def received(
  messages: Sequence[methods.Message], gathered: Gathered
) -> list[methods.Received]:
  """What a device has of the messages when they are there.

  Args:
    messages: see `move`.
    gathered: `Gathered`, on the device.

  Returns:
    One a message.
  """
  starts = methods.starts_of([piece.shape[1] for piece in gathered.together])
  parts = [[piece] for piece in gathered.together]
  pieces = list(map(methods.Piece, starts, parts))
  fixed = [message for message in messages if not varies(message)]
  together, apart = iter(methods.payloads(fixed, pieces)), iter(gathered.apart)
  return [
    _padded(message, next(apart)) if varies(message) else next(together)
    for message in messages
  ]


def _padded(
  message: methods.Message, pieces: Sequence[tf.Tensor]
) -> methods.Payloads:
  """The payloads of all workers, from their first words."""
  workers = pieces[0].shape[0]
  missing = message.num_words - tf.add_n([tf.shape(p)[1] for p in pieces])
  words = tf.concat([*pieces, tf.zeros([workers, missing], tf.int32)], axis=1)
  words = tf.ensure_shape(words, [workers, message.num_words])
  return methods.Payloads([methods.Piece(0, [words])], 0, message.num_words)
