"""The exchange between processes: all-gather, all-reduce, two-shot.

Process p of P has the workers p k to (p + 1) k - 1, so that what processes
gather is in the order of the workers. Inside a process they live on its devices
as towers do. Every device decodes what all workers sent, or their sum, by
itself; whatever the algorithm, the average is that of towers, to the bit.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.exchange import algorithms
from terngrad.exchange import gathering
from terngrad.exchange import group as groups
from terngrad.exchange import sums
from terngrad.exchange import towers

_T = TypeVar('_T')


class Collective:
  """The exchange of one process with the others; see `towers.Towers`.

  Attributes:
    devices: tuple of names of this process's devices, one replica on each.
    num_workers: of all processes.
    first: the first worker of this process.
    own: how many it has.
    group: `group.Group`.
  """

  def __init__(
    self,
    group: groups.Group,
    devices: tuple[str, ...],
    num_workers: int,
    algorithm: str = algorithms.AUTO,
    network: algorithms.Network = algorithms.GIGABIT,
  ) -> None:
    """Deals the workers.

    Args:
      group: of the processes.
      devices: see above.
      num_workers: a multiple of the processes, with a worker for each device.
      algorithm: `algorithms.AUTO` or one of `algorithms.NAMES`.
      network: by which `AUTO` chooses.
    """
    self.devices = devices
    self.num_workers = num_workers
    self.group = group
    self.own = num_workers // group.size
    self.first = group.rank * self.own
    self._choice = algorithm, network

  def workers_of(self, device_index: int) -> range:
    """The workers on `devices[device_index]`, as a range."""
    return range(
      self.first + device_index, self.first + self.own, len(self.devices)
    )

  def device_of(self, worker: int) -> int:
    """The index in `devices` of a worker of this process."""
    return (worker - self.first) % len(self.devices)

  @property
  def local_devices(self) -> range:
    """Indices in `devices` of this process's devices."""
    return range(len(self.devices))

  def batches(self, images: tf.Tensor, labels: tf.Tensor) -> list[towers.Batch]:
    """The examples of this process's workers; see `towers.Towers`."""
    batch = towers.Batch(images, labels, self.first)
    return [batch] * len(self.devices)

  def gather_metadata(
    self, rows: Sequence[tf.Tensor], conclude: Callable[[tf.Tensor], _T]
  ) -> tuple[tf.Tensor, list[_T]]:
    """Tells every worker's row of numbers to all; see `towers.Towers`."""
    everyone = self.group.all_gather(self._joined(rows))
    copies: list[tf.Tensor] = []
    concluded: list[_T] = []
    for device in self.devices:
      with tf.device(device):
        copies.append(tf.identity(everyone))
        concluded.append(conclude(copies[-1]))
    return copies[0], concluded

  def combine(
    self, messages: Sequence[methods.Message], payloads: Sequence[tf.Tensor]
  ) -> list[list[methods.Received]]:
    """Moves the messages of a round; see `towers.Towers`."""
    names = algorithms.choices(
      messages, self.num_workers, self.group.size, *self._choice
    )
    with tf.device(self.devices[0]):
      moved = self._move(messages, names, payloads)
    return [self._received(device, names, moved) for device in self.devices]

  def told(self, messages: Sequence[methods.Message]) -> str:
    """A line for people: how the messages of a step travel, and why."""
    return algorithms.told(
      messages, self.num_workers, self.group.size, *self._choice
    )

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Nothing: every process takes the same step; see `towers.Towers`."""
    # AutoGraph warns of a function that is a docstring alone.
    del step, losses

  def _move(
    self,
    messages: Sequence[methods.Message],
    names: Sequence[str],
    payloads: Sequence[tf.Tensor],
  ) -> '_Moved':
    """Moves the arguments of `combine`."""
    rows = self._joined(payloads)
    whole = [
      m for m, n in zip(messages, names, strict=True) if n == algorithms.GATHER
    ]
    if len(whole) == len(messages):
      return _Moved(whole, gathering.move(self.group, whole, rows), [])
    parts = groups.columns(rows, [message.num_words for message in messages])
    own, reduced = [], []
    for message, name, part in zip(messages, names, parts, strict=True):
      if name == algorithms.GATHER:
        own.append(part)
        continue
      reduction = sums.Reduction(message, self.group, self.num_workers)
      tensors = sums.ALGORITHMS[name].move(reduction, part)
      reduced.append(_Reduced(name, reduction, tensors))
    gathered = None
    if whole:
      gathered = gathering.move(self.group, whole, tf.concat(own, axis=1))
    return _Moved(whole, gathered, reduced)

  def _received(
    self, device: str, names: Sequence[str], moved: '_Moved'
  ) -> list[methods.Received]:
    """What a device receives; see `combine`."""
    with tf.device(device):
      whole: list[methods.Received] = []
      others: list[methods.Received] = []
      if moved.gathered:
        here = tf.nest.map_structure(tf.identity, moved.gathered)
        whole = gathering.received(moved.whole, here)
      for name, reduction, tensors in moved.reduced:
        here = [tf.identity(tensor) for tensor in tensors]
        others.append(sums.ALGORITHMS[name].received(reduction, here))
    gathered, reduced = iter(whole), iter(others)
    return [
      next(gathered if n == algorithms.GATHER else reduced) for n in names
    ]

  def _joined(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """The rows of this process's workers, in their order."""
    if len(parts) == 1:
      return parts[0]
    with tf.device(self.devices[0]):
      return towers.in_order(parts)


class _Reduced(NamedTuple):
  """A message that not all have whole: by which algorithm, what it moved."""

  name: str
  reduction: sums.Reduction
  tensors: list[tf.Tensor]


class _Moved(NamedTuple):
  """What all processes have of a round.

  Attributes:
    whole: those that were gathered.
    gathered: of them; None where there is none.
    reduced: the others in their order.
  """

  whole: list[methods.Message]
  gathered: gathering.Gathered | None
  reduced: list[_Reduced]
