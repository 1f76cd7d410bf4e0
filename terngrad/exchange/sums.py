"""Messages of which not all need all: what a process sends, adds, receives.

Each algorithm is a class, and an entry of `ALGORITHMS`. None rounds anything:
integers have one sum, and floats are added as float32 in the order of the
workers.
"""

import abc
import functools
from typing import NamedTuple
from typing import cast

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import packing as packings
from terngrad.codec.stages import wire
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
  def own(self) -> int:
    """Workers of a process."""
    return self.num_workers // self.group.size

  @property
  def cut(self) -> slices.Slices:
    """The slices of the message."""
    return slices.of(self.message, self.group.size)


class Algorithm(abc.ABC):
  """How a message travels that not all need whole."""

  @abc.abstractmethod
  def fits(self, message: methods.Message, num_workers: int) -> bool:
    """Whether it can be used."""

  @abc.abstractmethod
  def sent_words(
    self, message: methods.Message, num_workers: int, processes: int
  ) -> float:
    """What a process sends and receives, words of 32 bits."""

  @abc.abstractmethod
  def move(self, reduction: Reduction, rows: tf.Tensor) -> list[tf.Tensor]:
    """Lets a message travel.

    Args:
      reduction: of the message.
      rows: int32 [workers of this process, words of the message].

    Returns:
      Tensors that are equal in all processes.
    """

  @abc.abstractmethod
  def received(
    self, reduction: Reduction, moved: list[tf.Tensor]
  ) -> methods.Sum | methods.Scattered:
    """What `codec.method.Method.send` knows of the message.

    It is called on every device.

    Args:
      reduction: of the message.
      moved: from `move`.
    """


# Where a traced step calls it, each for its own device.
compiled = functools.partial(tf.function, jit_compile=True)


def _codes(message: methods.Message) -> bool:
  return message.combine == methods.SUM and message.levels is not None


class Reduce(Algorithm):
  """Words that add, in the runtime's ring all-reduce."""

  def fits(self, message: methods.Message, num_workers: int) -> bool:
    """Whether the packing adds."""
    packing = message.packing
    adds = isinstance(packing, wire.Packing) and packing.max_workers is not None
    return _codes(message) and adds

  def sent_words(
    self, message: methods.Message, num_workers: int, processes: int
  ) -> float:
    """A ring adds 1/P of the words at a time, and passes the sums on."""
    return 2 * (processes - 1) / processes * message.num_words

  def move(self, reduction: Reduction, rows: tf.Tensor) -> list[tf.Tensor]:
    """The sum of all words."""
    # It is one where `fits` says so.
    lanes = cast(wire.Packing, reduction.message.packing).lanes(rows)
    return [reduction.group.all_reduce(tf.reduce_sum(lanes, axis=0))]

  def received(
    self, reduction: Reduction, moved: list[tf.Tensor]
  ) -> methods.Sum:
    """The sums of codes that the words hold."""
    packing = cast(wire.Packing, reduction.message.packing)

    @compiled
    def unpack(total: tf.Tensor) -> tf.Tensor:
      sums = packing.sums_of_total(total, reduction.num_workers)
      small = reduction.message.dtype_of_sums(reduction.num_workers)
      return tf.cast(sums, small)

    return methods.Sum([unpack(*moved)])


class TwoShot(Algorithm):
  """Slices of codes, summed by their owners; the sums are packed, gathered."""

  def fits(self, message: methods.Message, num_workers: int) -> bool:
    """Whether there are codes, whose sums can be packed."""
    return (
      _codes(message)
      and slices.fits(message)
      and num_workers * message.sum_levels < packings.MOST_SUMMED
    )

  def sent_words(
    self, message: methods.Message, num_workers: int, processes: int
  ) -> float:
    """Slices of the own words, and the packed sums."""
    cut = slices.of(message, processes)
    own = num_workers // processes
    back = message.packing_of_sums(num_workers)
    packed = back.num_words(cut.elements_per_word * cut.width)
    return (processes - 1) * (own * cut.width + packed)

  def move(self, reduction: Reduction, rows: tf.Tensor) -> list[tf.Tensor]:
    """The packed sums of all slices."""
    cut, group = reduction.cut, reduction.group
    back = reduction.message.packing_of_sums(reduction.num_workers)

    @compiled
    def pack_sums(received: tf.Tensor) -> tf.Tensor:
      return back.pack(slices.in_planes(cut.sums(received), back))

    packed = pack_sums(group.all_to_all(cut.deal(rows)))
    return [group.all_gather(packed[tf.newaxis])]

  def received(
    self, reduction: Reduction, moved: list[tf.Tensor]
  ) -> methods.Sum:
    """The sums, in the order of the elements."""
    words = tf.reshape(moved[0], [-1])
    rows = reduction.message.unpacked_sums(words, reduction.num_workers)
    planes = slices.of_planes(rows, reduction.cut)
    return methods.Sum([tf.reshape(reduction.cut.by_digit(planes), [-1])])


class Slices(Algorithm):
  """Slices of floats, summed by their owners; the sums are gathered."""

  def fits(self, message: methods.Message, num_workers: int) -> bool:
    """Whether the message is of floats."""
    floats = message.combine == methods.SUM and message.levels is None
    return floats and slices.fits(message)

  def sent_words(
    self, message: methods.Message, num_workers: int, processes: int
  ) -> float:
    """Slices of the own words, and the sums."""
    cut = slices.of(message, processes)
    own = num_workers // processes
    # The sums are float32 however the message was packed.
    return (processes - 1) * (own + cut.elements_per_word) * cut.width

  def move(self, reduction: Reduction, rows: tf.Tensor) -> list[tf.Tensor]:
    """The sums of all slices, piece after piece."""
    group = reduction.group
    pieces = _pieces(reduction, rows.shape[0])
    parts = groups.columns(rows, [piece.num_words for piece in pieces])
    moved = []
    for piece, part in zip(pieces, parts, strict=True):
      sums = compiled(piece.sums_in_order)(group.all_to_all(piece.deal(part)))
      moved += group.all_gather_pieces(sums[tf.newaxis], most=1)
    return moved

  def received(
    self, reduction: Reduction, moved: list[tf.Tensor]
  ) -> methods.Sum:
    """The sums, in the order of the elements."""
    pieces = _pieces(reduction, reduction.own)
    rows = [
      piece.by_digit(values)
      for piece, values in zip(pieces, moved, strict=True)
    ]
    if reduction.cut.elements_per_word > 1 and len(rows) > 1:
      # Elements of a word stand far from each other.
      rows = [tf.concat(rows, axis=1)]
    return methods.Sum([tf.reshape(row, [-1]) for row in rows])


def _pieces(reduction: Reduction, own: int) -> list[slices.Slices]:
  """The message in pieces, one after the other."""
  whole = reduction.cut
  count = min(_MOST_PIECES, own * whole.num_words // reduction.group.piece)
  if count < 2:
    return [whole]
  # A multiple of the processes, so that only the last piece is padded.
  size = -(-whole.num_words // (count * whole.processes)) * whole.processes
  starts = range(0, whole.num_words, size)
  counts = [min(size, whole.num_words - start) for start in starts]
  k = whole.elements_per_word
  return [whole._replace(num_words=n, num_elements=n * k) for n in counts]


class Scatter(Algorithm):
  """Parts for each worker, which go to it alone."""

  def fits(self, message: methods.Message, num_workers: int) -> bool:
    """Whether the message is declared to be scattered."""
    return message.combine == methods.SCATTER

  def sent_words(
    self, message: methods.Message, num_workers: int, processes: int
  ) -> float:
    """The parts of other processes' workers."""
    own = num_workers // processes
    return (processes - 1) * own * message.num_words / processes

  def move(self, reduction: Reduction, rows: tf.Tensor) -> list[tf.Tensor]:
    """The parts for the workers of this process."""
    size, own = reduction.group.size, reduction.own
    parts = tf.reshape(rows, [own, size, reduction.message.num_words // size])
    return [reduction.group.all_to_all(tf.transpose(parts, [1, 0, 2]))]

  def received(
    self, reduction: Reduction, moved: list[tf.Tensor]
  ) -> methods.Scattered:
    """The parts, worker by worker."""
    own = reduction.own
    words = reduction.message.num_words // reduction.num_workers
    rows = tf.reshape(moved[0], [reduction.num_workers, own, words])
    return methods.Scattered(rows, reduction.group.rank * own)


ALGORITHMS: dict[str, Algorithm] = {
  REDUCE: Reduce(),
  TWO_SHOT: TwoShot(),
  SLICES: Slices(),
  SCATTER: Scatter(),
}
