"""Algorithms for messages that need not reach all processes whole.

Each algorithm is a class and an entry of `ALGORITHMS`. No algorithm rounds:
integer sums are exact, and floats are added as float32 in the order of the
workers.
"""

import abc
from typing import NamedTuple
from typing import cast

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import packing as packings
from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.codec.stages import wire
from terngrad.exchange import group as groups
from terngrad.exchange import slices

REDUCE, TWO_SHOT, SLICES = 'reduce', 'two_shot', 'slices'
SCATTER = methods.SCATTER
# In pieces, one part of a large message is added while others are sent.
_MOST_PIECES = 16


class Reduction(NamedTuple):
  """A message, the group that exchanges it and the number of workers.

  Attributes:
    message: a SUM or SCATTER message.
    group: of the processes.
    num_workers: of all processes.
  """

  message: methods.Message
  group: groups.Group
  num_workers: int

  @property
  def nodes(self) -> int:
    """Workers of a process."""
    return self.num_workers // self.group.size

  @property
  def layout(self) -> slices.SliceLayout:
    """The slices of the message."""
    return slices.layout_of(self.message, self.group.size)


class Algorithm(abc.ABC):
  """Moves a message that need not reach all processes whole."""

  @abc.abstractmethod
  def fits(self, message: methods.Message, num_workers: int) -> bool:
    """Returns True if the algorithm supports the message."""

  @abc.abstractmethod
  def sent_words(
    self, message: methods.Message, num_workers: int, processes: int
  ) -> float:
    """Returns how many 32-bit words a process sends, and receives."""

  @abc.abstractmethod
  def move(self, reduction: Reduction, rows: tf.Tensor) -> list[tf.Tensor]:
    """Exchanges a message between the processes.

    Args:
      reduction: of the message.
      rows: float32 [workers of this process, words of the message], as in
        `transport`; or int32.

    Returns:
      Tensors of the same shapes in all processes, from which `receive` reads.
    """

  @abc.abstractmethod
  def receive(
    self, reduction: Reduction, moved: list[tf.Tensor]
  ) -> methods.Sum | methods.Scattered:
    """Converts moved tensors to the message that `Method.send` receives.

    It is called on every device.

    Args:
      reduction: of the message.
      moved: from `move`.
    """


# A traced step calls these once per device.
jit = tracing.compiled


def _has_codes(message: methods.Message) -> bool:
  return message.combine == methods.SUM and message.levels is not None


class Reduce(Algorithm):
  """Adds words with the runtime's ring all-reduce."""

  def fits(self, message: methods.Message, num_workers: int) -> bool:
    """Returns True for codes in words that can be added."""
    packing = message.packing
    adds = isinstance(packing, wire.Packing) and packing.max_workers is not None
    return _has_codes(message) and adds

  def sent_words(
    self, message: methods.Message, num_workers: int, processes: int
  ) -> float:
    """Returns the words of a ring: 1/P of the message at a time, twice."""
    return 2 * (processes - 1) / processes * message.num_words

  def move(self, reduction: Reduction, rows: tf.Tensor) -> list[tf.Tensor]:
    """Returns the sum of all words."""
    # `fits` has checked the type.
    packing = cast(wire.Packing, reduction.message.packing)
    # int32 is added on the host.
    with tf.device(groups.HOST):
      total = tf.reduce_sum(packing.lanes(rows), axis=0)
      return [transport.to_float32(reduction.group.all_reduce(total))]

  def receive(
    self, reduction: Reduction, moved: list[tf.Tensor]
  ) -> methods.Sum:
    """Unpacks the sums of codes from the sum of words."""
    packing = cast(wire.Packing, reduction.message.packing)

    @jit
    def unpack(total: tf.Tensor) -> tf.Tensor:
      total = transport.to_int32(total)
      sums = packing.sums_of_total(total, reduction.num_workers)
      small = reduction.message.dtype_of_sums(reduction.num_workers)
      return transport.to_float32(tf.cast(sums, small))

    return methods.Sum([unpack(*moved)], integers=True)


class TwoShot(Algorithm):
  """Adds one slice of codes per process, then gathers the packed sums."""

  def fits(self, message: methods.Message, num_workers: int) -> bool:
    """Returns True for codes whose sums can be packed."""
    return (
      _has_codes(message)
      and slices.fits(message)
      and num_workers * message.sum_levels < packings.MOST_SUMMED
    )

  def sent_words(
    self, message: methods.Message, num_workers: int, processes: int
  ) -> float:
    """Returns the words of the slices and of the packed sums."""
    layout = slices.layout_of(message, processes)
    nodes = num_workers // processes
    packing = message.packing_of_sums(num_workers)
    packed = packing.num_words(layout.elements_per_word * layout.width)
    return (processes - 1) * (nodes * layout.width + packed)

  def move(self, reduction: Reduction, rows: tf.Tensor) -> list[tf.Tensor]:
    """Returns the packed sums of all slices."""
    layout, group = reduction.layout, reduction.group
    packing = reduction.message.packing_of_sums(reduction.num_workers)

    @jit
    def pack_sums(received: tf.Tensor) -> tf.Tensor:
      sums = layout.sums(transport.to_int32(received))
      words = packing.pack(slices.split_planes(sums, packing))
      return transport.to_float32(words)

    packed = pack_sums(group.all_to_all(layout.split(rows)))
    return [group.all_gather(packed[tf.newaxis])]

  def receive(
    self, reduction: Reduction, moved: list[tf.Tensor]
  ) -> methods.Sum:
    """Unpacks the sums, in the order of the elements."""
    words = tf.reshape(moved[0], [-1])
    rows = reduction.message.unpacked_sums(words, reduction.num_workers)
    planes = slices.join_planes(rows, reduction.layout)
    values = reduction.layout.arrange_planes(planes)
    return methods.Sum([tf.reshape(values, [-1])], integers=True)


class Slices(Algorithm):
  """Adds one slice of floats per process, then gathers the sums."""

  def fits(self, message: methods.Message, num_workers: int) -> bool:
    """Returns True for messages of floats."""
    has_floats = message.combine == methods.SUM and message.levels is None
    return has_floats and slices.fits(message)

  def sent_words(
    self, message: methods.Message, num_workers: int, processes: int
  ) -> float:
    """Returns the words of the slices and of the sums."""
    layout = slices.layout_of(message, processes)
    nodes = num_workers // processes
    # The sums are float32 however the message was packed.
    return (processes - 1) * (nodes + layout.elements_per_word) * layout.width

  def move(self, reduction: Reduction, rows: tf.Tensor) -> list[tf.Tensor]:
    """Returns the sums of all slices, piece by piece."""
    group = reduction.group
    pieces = _pieces(reduction, rows.shape[0])
    parts = groups.columns(rows, [piece.num_words for piece in pieces])
    moved = []
    for piece, part in zip(pieces, parts, strict=True):
      sums = jit(piece.sums_in_order)(group.all_to_all(piece.split(part)))
      moved += group.all_gather_pieces(sums[tf.newaxis], max_pieces=1)
    return moved

  def receive(
    self, reduction: Reduction, moved: list[tf.Tensor]
  ) -> methods.Sum:
    """Returns the sums, in the order of the elements."""
    pieces = _pieces(reduction, reduction.nodes)
    rows = [
      piece.arrange_planes(values)
      for piece, values in zip(pieces, moved, strict=True)
    ]
    if reduction.layout.elements_per_word > 1 and len(rows) > 1:
      # The elements of one word are far apart in the bucket.
      rows = [tf.concat(rows, axis=1)]
    return methods.Sum([tf.reshape(row, [-1]) for row in rows])


def _pieces(reduction: Reduction, nodes: int) -> list[slices.SliceLayout]:
  """Splits the message into consecutive pieces."""
  whole = reduction.layout
  count = min(_MOST_PIECES, nodes * whole.num_words // reduction.group.piece)
  if count < 2:
    return [whole]
  # A multiple of the processes, so that only the last piece is padded.
  size = -(-whole.num_words // (count * whole.processes)) * whole.processes
  starts = range(0, whole.num_words, size)
  counts = [min(size, whole.num_words - start) for start in starts]
  k = whole.elements_per_word
  return [whole._replace(num_words=n, num_elements=n * k) for n in counts]


class Scatter(Algorithm):
  """Sends each worker its part only."""

  def fits(self, message: methods.Message, num_workers: int) -> bool:
    """Returns True for SCATTER messages."""
    return message.combine == methods.SCATTER

  def sent_words(
    self, message: methods.Message, num_workers: int, processes: int
  ) -> float:
    """Returns the words of the parts for workers of other processes."""
    nodes = num_workers // processes
    return (processes - 1) * nodes * message.num_words / processes

  def move(self, reduction: Reduction, rows: tf.Tensor) -> list[tf.Tensor]:
    """Returns the parts for the workers of this process."""
    size, nodes = reduction.group.size, reduction.nodes
    parts = tf.reshape(rows, [nodes, size, reduction.message.num_words // size])
    return [reduction.group.all_to_all(tf.transpose(parts, [1, 0, 2]))]

  def receive(
    self, reduction: Reduction, moved: list[tf.Tensor]
  ) -> methods.Scattered:
    """Returns the parts, ordered by worker."""
    nodes = reduction.nodes
    words = reduction.message.num_words // reduction.num_workers
    rows = tf.reshape(moved[0], [reduction.num_workers, nodes, words])
    return methods.Scattered(rows, reduction.group.rank * nodes)


ALGORITHMS: dict[str, Algorithm] = {
  REDUCE: Reduce(),
  TWO_SHOT: TwoShot(),
  SLICES: Slices(),
  SCATTER: Scatter(),
}
