"""Messages of which not all need all: what a process sends, adds, receives.

Each algorithm is an entry of `ALGORITHMS`. None rounds anything: integers have
one sum, and floats are added as float32 in the order of the workers.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import packing as packings
from terngrad.exchange import group as groups
from terngrad.exchange import slices

REDUCE, TWO_SHOT, SLICES = 'reduce', 'two_shot', 'slices'
SCATTER = methods.SCATTER
# So that one piece of a large message is added while others are on the wire.
_MOST_PIECES = 16


class Reduction(NamedTuple):
  """A message on its way.

  Attributes:
    message: `codec.method.Message` of kind SUM or SCATTER.
    group: `group.Group`.
    num_workers: of all processes.
  """

  message: methods.Message
  group: groups.Group
  num_workers: int

  @property
  def own(self):
    """Workers of a process."""
    return self.num_workers // self.group.size

  @property
  def cut(self):
    """The `slices.Slices` of the message."""
    return slices.of(self.message, self.group.size)

  @property
  def dtype(self):
    """The narrowest type that holds a sum of codes."""
    largest = self.num_workers * self.message.levels
    return tf.int8 if largest < 128 else tf.int32


class Algorithm(NamedTuple):
  """How a message travels that not all need whole.

  Attributes:
    fits: takes (message, num_workers), returns whether it can be used.
    sent_words: takes (message, num_workers, processes), returns what a process
      sends and receives, words of 32 bits; float.
    move: takes (`Reduction`, int32 [workers of this process, words of the
      message]); returns a list of tensors, equal in all processes.
    received: takes (`Reduction`, that list); returns what
      `codec.method.Method.send` knows of the message, `Sum` or `Scattered`. It
      is called on every device.
  """

  fits: Callable
  sent_words: Callable
  move: Callable
  received: Callable


def compiled(function):
  """Compiled where a traced step calls it, each for its own device."""
  return tf.function(function, jit_compile=True)


def _codes(message):
  return message.combine == methods.SUM and message.levels is not None


# Words that add, in the runtime's ring all-reduce.


def _adds(message, num_workers):
  del num_workers
  return _codes(message) and message.packing.max_workers is not None


def _words_reduced(message, num_workers, processes):
  del num_workers
  # A ring adds 1/P of the words at a time, and passes the sums on.
  return 2 * (processes - 1) / processes * message.num_words


def _reduce(reduction, rows):
  lanes = reduction.message.packing.lanes(rows)
  return [reduction.group.all_reduce(tf.reduce_sum(lanes, axis=0))]


def _reduced_total(reduction, moved):
  packing = reduction.message.packing

  @compiled
  def unpack(total):
    sums = packing.sums_of_total(total, reduction.num_workers)
    return tf.cast(sums, reduction.dtype)

  return methods.Sum([unpack(*moved)])


# Slices of codes, summed by their owners; the sums are packed and gathered.


def _packs_again(message, num_workers):
  return (
    _codes(message)
    and slices.fits(message)
    and num_workers * message.levels < packings.MOST_SUMMED
  )


def _back(message, num_workers):
  """The packing of sums of codes."""
  return packings.sums(num_workers * message.levels)


def _words_of_two_shots(message, num_workers, processes):
  cut = slices.of(message, processes)
  own = num_workers // processes
  back = _back(message, num_workers).num_words(
    cut.elements_per_word * cut.width
  )
  return (processes - 1) * (own * cut.width + back)


def _two_shot(reduction, rows):
  cut, group = reduction.cut, reduction.group
  back = _back(reduction.message, reduction.num_workers)

  @compiled
  def pack_sums(received):
    return back.pack(slices.in_planes(cut.sums(received), back))

  packed = pack_sums(group.all_to_all(cut.deal(rows)))
  return [group.all_gather(packed[tf.newaxis])]


def _two_shot_total(reduction, moved):
  (packed,) = moved
  back = _back(reduction.message, reduction.num_workers)

  @compiled
  def unpack(words):
    return [tf.cast(plane, reduction.dtype) for plane in back.unpack(words)]

  # Joined outside of compiled code, which branches at every element of it.
  rows = unpack(tf.reshape(packed, [-1]))
  planes = slices.of_planes(rows, reduction.cut)
  return methods.Sum([reduction.cut.in_order(planes)])


# Slices of floats, summed by their owners; the sums are gathered.


def _is_of_floats(message, num_workers):
  del num_workers
  floats = message.combine == methods.SUM and message.levels is None
  return floats and slices.fits(message)


def _words_of_slices(message, num_workers, processes):
  cut = slices.of(message, processes)
  own = num_workers // processes
  # The sums are float32 however the message was packed.
  return (processes - 1) * (own + cut.elements_per_word) * cut.width


def _pieces(reduction, own):
  """The message as a list of `slices.Slices`, one after the other."""
  whole = reduction.cut
  count = min(_MOST_PIECES, own * whole.num_words // reduction.group.piece)
  if count < 2:
    return [whole]
  # A multiple of the processes, so that only the last piece is padded.
  size = -(-whole.num_words // (count * whole.processes)) * whole.processes
  found, rest = [], whole.num_words
  while rest:
    words = min(size, rest)
    elements = words * whole.elements_per_word
    found.append(whole._replace(num_words=words, num_elements=elements))
    rest -= words
  return found


def _slices(reduction, rows):
  group = reduction.group
  pieces = _pieces(reduction, rows.shape[0])
  parts = groups.columns(rows, [piece.num_words for piece in pieces])
  moved = []
  for piece, part in zip(pieces, parts, strict=True):
    received = group.all_to_all(piece.deal(part))
    sums = compiled(piece.sums_in_order)(received)
    moved += group.all_gather_pieces(sums[tf.newaxis], most=1)
  return moved


def _slices_total(reduction, moved):
  pieces = _pieces(reduction, reduction.own)
  rows = [
    piece.by_digit(values) for piece, values in zip(pieces, moved, strict=True)
  ]
  if reduction.cut.elements_per_word > 1 and len(rows) > 1:
    # Elements of a word stand far from each other.
    rows = [tf.concat(rows, axis=1)]
  return methods.Sum([tf.reshape(row, [-1]) for row in rows])


# Parts for each worker, which go to it alone.


def _is_scattered(message, num_workers):
  del num_workers
  return message.combine == methods.SCATTER


def _words_scattered(message, num_workers, processes):
  own = num_workers // processes
  return (processes - 1) * own * message.num_words / processes


def _scatter(reduction, rows):
  size, own = reduction.group.size, reduction.own
  parts = tf.reshape(rows, [own, size, reduction.message.num_words // size])
  return [reduction.group.all_to_all(tf.transpose(parts, [1, 0, 2]))]


def _scattered(reduction, moved):
  own = reduction.own
  words = reduction.message.num_words // reduction.num_workers
  rows = tf.reshape(moved[0], [reduction.num_workers, own, words])
  return methods.Scattered(rows, reduction.group.rank * own)


ALGORITHMS = {
  REDUCE: Algorithm(_adds, _words_reduced, _reduce, _reduced_total),
  TWO_SHOT: Algorithm(
    _packs_again, _words_of_two_shots, _two_shot, _two_shot_total
  ),
  SLICES: Algorithm(_is_of_floats, _words_of_slices, _slices, _slices_total),
  SCATTER: Algorithm(_is_scattered, _words_scattered, _scatter, _scattered),
}
