"""The exchange between processes: all-gather, all-reduce, two-shot.

Process p of P runs the workers p k to (p + 1) k - 1, so that gathered rows are
in the order of the workers. Within a process, workers run on its devices as in
`towers`. Every device decodes what all workers sent, or the sum of it. The mean
is bit-identical to that of `towers`, whatever the algorithm.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import TypeVar

import tensorflow as tf

from terngrad import aliases
from terngrad.codec import method as methods
from terngrad.exchange import algorithms
from terngrad.exchange import gathering
from terngrad.exchange import group as groups
from terngrad.exchange import sums
from terngrad.exchange import towers

_T = TypeVar('_T')
# (The gathered messages; their words; for each other message, in order, its
# algorithm, the reduction and the tensors that the algorithm moved).
_Moved = tuple[
  list[methods.Message],
  gathering.Gathered,
  list[tuple[sums.Algorithm, sums.Reduction, list[tf.Tensor]]],
]


class Collective:
  """The exchange of one process in a group of equal processes.

  Attributes:
    devices: names of this process's devices, one replica on each.
    num_workers: of all processes.
    first: the first worker of this process.
    num_local_workers: of this process.
    group: the group of processes.
  """

  def __init__(
    self,
    group: groups.Group,
    devices: tuple[str, ...],
    num_workers: int,
    algorithm: str = algorithms.AUTO,
    network: algorithms.Link = algorithms.GIGABIT,
  ) -> None:
    """Assigns the workers to processes and devices.

    Args:
      group: of the processes.
      devices: names of this process's devices.
      num_workers: of all processes: a multiple of the number of processes, with
        at least one worker per device.
      algorithm: `algorithms.AUTO` or one of `algorithms.NAMES`.
      network: the link speed from which `AUTO` chooses.
    """
    self.group, self.devices, self.num_workers = group, devices, num_workers
    self.num_local_workers = num_workers // group.size
    self.first = group.rank * self.num_local_workers
    network = network._replace(adds_integers=not group.on_gpus)
    self._choice = algorithm, network

  def workers_of(self, device_index: int) -> range:
    """Returns the workers on `devices[device_index]`."""
    return range(
      self.first + device_index,
      self.first + self.num_local_workers,
      len(self.devices),
    )

  def device_of(self, worker: int) -> int:
    """Returns the index in `devices` of a worker of this process."""
    return (worker - self.first) % len(self.devices)

  @property
  def local_devices(self) -> range:
    """Indices in `devices` of this process's devices."""
    return range(len(self.devices))

  def batches(self, images: tf.Tensor, labels: tf.Tensor) -> list[towers.Batch]:
    """Returns the examples of this process's workers for each device."""
    return [towers.Batch(images, labels, self.first)] * len(self.devices)

  def gather_metadata(
    self, rows: Sequence[tf.Tensor], conclude: Callable[[tf.Tensor], _T]
  ) -> tuple[tf.Tensor, list[_T]]:
    """Gathers one row of numbers per worker on all devices."""
    all_rows = self.group.all_gather(self._join_rows(rows))
    return towers.conclude_on(self.devices, [all_rows], conclude)

  def combine(
    self, messages: Sequence[methods.Message], payloads: Sequence[tf.Tensor]
  ) -> list[list[methods.Received]]:
    """Moves the messages of a round, each by the chosen algorithm."""
    names = algorithms.choices(
      messages, self.num_workers, self.group.size, *self._choice
    )
    with tf.device(self.devices[0]):
      moved = self._move(messages, names, payloads)
    return [self._receive(device, names, moved) for device in self.devices]

  def describe_plan(self, messages: Sequence[methods.Message]) -> str:
    """Returns a log line with the algorithm of each message and its cost."""
    return algorithms.describe_plan(
      messages, self.num_workers, self.group.size, *self._choice
    )

  told = aliases.renamed_attribute('told', 'describe_plan')
  own = aliases.renamed_attribute('own', 'num_local_workers')

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Does nothing, because every process computes the same step."""
    # AutoGraph warns about a function that consists only of a docstring.
    del step, losses

  def _move(
    self,
    messages: Sequence[methods.Message],
    names: Sequence[str],
    payloads: Sequence[tf.Tensor],
  ) -> _Moved:
    """Moves the messages of a round between the processes."""
    rows = self._join_rows(payloads)
    whole = [
      m for m, n in zip(messages, names, strict=True) if n == algorithms.GATHER
    ]
    if len(whole) == len(messages):
      return whole, gathering.move(self.group, whole, rows), []
    parts = groups.columns(rows, [message.num_words for message in messages])
    columns, reduced = [], []
    for message, name, part in zip(messages, names, parts, strict=True):
      if name == algorithms.GATHER:
        columns.append(part)
      else:
        algorithm = sums.ALGORITHMS[name]
        reduction = sums.Reduction(message, self.group, self.num_workers)
        reduced.append((algorithm, reduction, algorithm.move(reduction, part)))
    gathered = gathering.Gathered([], [])
    if whole:
      gathered = gathering.move(self.group, whole, tf.concat(columns, axis=1))
    return whole, gathered, reduced

  def _receive(
    self, device: str, names: Sequence[str], moved: _Moved
  ) -> list[methods.Received]:
    """Returns the received messages on one device."""
    messages, gathered, reduced = moved
    with tf.device(device):
      copies = tf.nest.map_structure(tf.identity, gathered)
      whole = iter(gathering.receive(messages, copies))
      others = iter(
        [
          algorithm.receive(reduction, list(map(tf.identity, tensors)))
          for algorithm, reduction, tensors in reduced
        ]
      )
    return [next(whole if n == algorithms.GATHER else others) for n in names]

  def _join_rows(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the rows of this process's workers, in their order."""
    if len(parts) == 1:
      return parts[0]
    with tf.device(self.devices[0]):
      return towers.order_by_worker(parts)
