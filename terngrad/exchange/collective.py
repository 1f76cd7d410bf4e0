"""The exchange between processes: all-gather, all-reduce, two-shot.

Process p of P has the workers p k to (p + 1) k - 1, so that what processes
gather is in the order of the workers. Inside a process they live on its devices
as towers do. Every device decodes what all workers sent, or their sum, by
itself; whatever the algorithm, the average is that of towers, to the bit.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.exchange import algorithms
from terngrad.exchange import gathering
from terngrad.exchange import group as groups
from terngrad.exchange import sums
from terngrad.exchange import towers

_T = TypeVar('_T')
# The messages that were gathered, what was gathered of them; and of each other
# message, in their order, by which algorithm it travelled and what that moved.
_Moved = tuple[
  list[methods.Message],
  gathering.Gathered,
  list[tuple[sums.Algorithm, sums.Reduction, list[tf.Tensor]]],
]


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
    self.group, self.devices, self.num_workers = group, devices, num_workers
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
    return [towers.Batch(images, labels, self.first)] * len(self.devices)

  def gather_metadata(
    self, rows: Sequence[tf.Tensor], conclude: Callable[[tf.Tensor], _T]
  ) -> tuple[tf.Tensor, list[_T]]:
    """Tells every worker's row of numbers to all; see `towers.Towers`."""
    everyone = self.group.all_gather(self._joined(rows))
    return towers.conclude_on(self.devices, [everyone], conclude)

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
  ) -> _Moved:
    """Moves the arguments of `combine`."""
    rows = self._joined(payloads)
    whole = [
      m for m, n in zip(messages, names, strict=True) if n == algorithms.GATHER
    ]
    if len(whole) == len(messages):
      return whole, gathering.move(self.group, whole, rows), []
    parts = groups.columns(rows, [message.num_words for message in messages])
    own, reduced = [], []
    for message, name, part in zip(messages, names, parts, strict=True):
      if name == algorithms.GATHER:
        own.append(part)
      else:
        algorithm = sums.ALGORITHMS[name]
        reduction = sums.Reduction(message, self.group, self.num_workers)
        reduced.append((algorithm, reduction, algorithm.move(reduction, part)))
    gathered = gathering.Gathered([], [])
    if whole:
      gathered = gathering.move(self.group, whole, tf.concat(own, axis=1))
    return whole, gathered, reduced

  def _received(
    self, device: str, names: Sequence[str], moved: _Moved
  ) -> list[methods.Received]:
    """What a device receives; see `combine`."""
    messages, gathered, reduced = moved
    with tf.device(device):
      here = tf.nest.map_structure(tf.identity, gathered)
      whole = iter(gathering.received(messages, here))
      others = iter(
        [
          algorithm.received(reduction, list(map(tf.identity, tensors)))
          for algorithm, reduction, tensors in reduced
        ]
      )
    return [next(whole if n == algorithms.GATHER else others) for n in names]

  def _joined(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """The rows of this process's workers, in their order."""
    if len(parts) == 1:
      return parts[0]
    with tf.device(self.devices[0]):
      return towers.in_order(parts)
