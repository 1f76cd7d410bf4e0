"""The exchange by parameter servers: push codes, pull packed sums.

Worker r lives on device r mod M, as with towers; the devices of a process are
its devices. Workers push their messages, a range of words to each server; a
server adds them in the order of the workers and every process pulls each sum
once, whatever the number of its devices.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import totals as totals_lib
from terngrad.exchange import towers as tower_lib

_T = TypeVar('_T')


class Feed(NamedTuple):
  """Where a process other than the chief finds its batches.

  Attributes:
    device: full name of its first CPU.
    handle: resource of its queue of batches.
    progress: resource of its queue of steps taken, see `cluster.tasks`.
    dtypes: of images and labels.
    shapes: of images [nodes, b, ...] and labels [nodes, b].
  """

  device: str
  handle: tf.Tensor
  progress: tf.Tensor
  dtypes: tuple[tf.DType, tf.DType]
  shapes: tuple[Sequence[int | None], Sequence[int | None]]

  def next(self) -> tuple[tf.Tensor, tf.Tensor]:
    """(images, labels), on the process's own CPU."""
    with tf.device(self.device):
      parts = tf.raw_ops.QueueDequeueV2(
        handle=self.handle, component_types=list(self.dtypes)
      )
    for part, shape in zip(parts, self.shapes, strict=True):
      part.set_shape(shape)
    images, labels = parts
    return images, labels

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Lets the process say what its examples' loss was.

    Args:
      step: int64 [], steps taken before this one.
      losses: list of float32 [nodes], of its devices.
    """
    with tf.device(self.device):
      loss = tf.reduce_mean(tf.concat(losses, axis=0))
      tf.raw_ops.QueueEnqueueV2(
        handle=self.progress, components=[step + 1, loss]
      )


class Given(NamedTuple):
  """Examples that are on another process already, in place of a `Feed`."""

  images: tf.Tensor
  labels: tf.Tensor

  def next(self) -> tuple[tf.Tensor, tf.Tensor]:
    """The examples."""
    return self.images, self.labels

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Nobody wants to know."""


class Servers(NamedTuple):
  """Who lives where; see `towers.Towers` for what every exchange has.

  Attributes:
    towers: `towers.Towers`, the workers on full device names; the devices come
      device by device, so that process p has the workers p, p + P, p + 2 P...
    servers: tuple of full device names, one a parameter server.
    num_processes: P, processes with workers.
    feeds: list of `Feed`, one for each process but the chief's; looked at when
      a step is traced.
  """

  towers: tower_lib.Towers
  servers: tuple[str, ...]
  num_processes: int
  feeds: Sequence[Feed | Given] = ()

  @property
  def devices(self) -> tuple[str, ...]:
    """Full device names."""
    return self.towers.devices

  @property
  def num_workers(self) -> int:
    """Of all processes."""
    return self.towers.num_workers

  @property
  def local_devices(self) -> range:
    """The device indices of the chief's process."""
    return range(0, len(self.devices), self.num_processes)

  @property
  def first(self) -> int:
    """The first worker of the chief's program, which has all."""
    return 0

  @property
  def group(self) -> None:
    """The group of equal processes: there is none."""
    return None

  @property
  def own(self) -> int:
    """How many workers the chief's program has."""
    return self.num_workers

  def workers_of(self, device_index: int) -> range:
    """The workers on `devices[device_index]`, as a range."""
    return self.towers.workers_of(device_index)

  def device_of(self, worker: int) -> int:
    """The index in `devices` of a worker's device."""
    return self.towers.device_of(worker)

  def process_of(self, device_index: int) -> int:
    """The process that a device belongs to."""
    return device_index % self.num_processes

  def batches(
    self, images: tf.Tensor, labels: tf.Tensor
  ) -> list[tower_lib.Batch]:
    """The examples of all processes; see `Towers.batches`."""
    found = [(images, labels), *(feed.next() for feed in self.feeds)]
    count = self.num_processes
    # Process p has the workers p, p + P, p + 2 P...
    return [
      tower_lib.Batch(*found[p], first=p, stride=count)
      for p in map(self.process_of, range(len(self.devices)))
    ]

  def gather_metadata(
    self, rows: Sequence[tf.Tensor], conclude: Callable[[tf.Tensor], _T]
  ) -> tuple[tf.Tensor, list[_T]]:
    """Tells the first server every worker's row, and all what follows.

    Args:
      rows: for each device float32 [its workers, n].
      conclude: see `Towers.gather_metadata`; only the server calls it.

    Returns:
      (float32 [workers, n] on the first server; for each device what `conclude`
      returned).
    """
    server = self.servers[:1]
    everyone, (concluded,) = tower_lib.conclude_on(server, rows, conclude)
    values = [self._pull(value) for value in tf.nest.flatten(concluded)]
    return everyone, [
      tf.nest.pack_sequence_as(concluded, list(own))
      for own in zip(*values, strict=True)
    ]

  def combine(
    self, messages: Sequence[methods.Message], payloads: Sequence[tf.Tensor]
  ) -> list[list[methods.Received]]:
    """Moves the messages of a round; see `Towers.combine`.

    What is scattered all processes get whole.
    """
    totals = self.totals(messages)
    pulled: list[list[tf.Tensor]] = [[] for _ in self.devices]
    for server, (start, stop) in enumerate(totals.ranges):
      if start == stop:
        continue
      parts = []
      for device, payload in zip(self.devices, payloads, strict=True):
        with tf.device(device):
          parts.append(totals.pushed(server, payload))
      with tf.device(self.servers[server]):
        total = totals.add(server, parts)
      for index, words in enumerate(self._pull(total)):
        pulled[index].append(words)
    received = []
    for device, words in zip(self.devices, pulled, strict=True):
      with tf.device(device):
        received.append(totals.received(words))
    return received

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Tells each process the losses of its examples; see `Towers.report`."""
    for process, feed in enumerate(self.feeds, start=1):
      feed.report(step, losses[process :: self.num_processes])

  def totals(self, messages: Sequence[methods.Message]) -> totals_lib.Totals:
    """The totals of the messages of a round."""
    return totals_lib.Totals(messages, self.num_workers, len(self.servers))

  def _pull(self, value: tf.Tensor) -> list[tf.Tensor]:
    """A server's tensor on every device: one transfer a process."""
    found: list[tf.Tensor] = []
    for index, device in enumerate(self.devices):
      # The first devices are one of each process.
      is_first = index < self.num_processes
      source = value if is_first else found[self.process_of(index)]
      with tf.device(device):
        found.append(tf.identity(source))
    return found
