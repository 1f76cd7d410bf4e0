"""The exchange by parameter servers: push codes, pull packed sums.

Worker r runs on device r mod M, as in `towers`; the devices belong to several
processes. Workers push one range of words to each server. A server adds the
messages in the order of the workers. Each process pulls each sum once, for all
of its devices.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeVar

import tensorflow as tf

from terngrad import aliases
from terngrad.codec import method as methods
from terngrad.codec import totals as totals_lib
from terngrad.exchange import towers as tower_lib

_T = TypeVar('_T')


class Feed(NamedTuple):
  """The source of batches of a process other than the chief.

  Attributes:
    device: full name of the process's first CPU.
    handle: resource of its queue of batches.
    progress: resource of its queue of completed steps, see `cluster.tasks`.
    dtypes: of images and labels.
    shapes: of images [nodes, b, ...] and labels [nodes, b].
  """

  device: str
  handle: tf.Tensor
  progress: tf.Tensor
  dtypes: tuple[tf.DType, tf.DType]
  shapes: tuple[Sequence[int | None], Sequence[int | None]]

  def next(self) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (images, labels), on the CPU of the process."""
    with tf.device(self.device):
      parts = tf.raw_ops.QueueDequeueV2(
        handle=self.handle, component_types=list(self.dtypes)
      )
    for part, shape in zip(parts, self.shapes, strict=True):
      part.set_shape(shape)
    images, labels = parts
    return images, labels

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Sends the process the mean loss of its examples.

    Args:
      step: int64 [], steps taken before this one.
      losses: float32 [nodes] for each of its devices.
    """
    with tf.device(self.device):
      loss = tf.reduce_mean(tf.concat(losses, axis=0))
      tf.raw_ops.QueueEnqueueV2(
        handle=self.progress, components=[step + 1, loss]
      )


class LocalBatch(NamedTuple):
  """Examples that are already on another process, in place of a `Feed`."""

  images: tf.Tensor
  labels: tf.Tensor

  def next(self) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (images, labels)."""
    return self.images, self.labels

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Does nothing, because nothing reads these losses."""


class Servers(NamedTuple):
  """The devices of workers and servers, and the transfers between them.

  Attributes:
    towers: the workers on full device names. Devices are in round-robin order
      of the processes, so that process p has the workers p, p + P, p + 2 P...
    servers: full device names, one per parameter server.
    num_processes: the number P of processes with workers.
    feeds: one `Feed` for each process except the chief; read when a step is
      traced.
  """

  towers: tower_lib.Towers
  servers: tuple[str, ...]
  num_processes: int
  feeds: Sequence[Feed | LocalBatch] = ()

  @property
  def devices(self) -> tuple[str, ...]:
    """Full device names."""
    return self.towers.devices

  @property
  def num_workers(self) -> int:
    """The number of workers of all processes."""
    return self.towers.num_workers

  @property
  def local_devices(self) -> range:
    """The device indices of the chief's process."""
    return range(0, len(self.devices), self.num_processes)

  @property
  def first(self) -> int:
    """The first worker of the chief's program, which has all workers."""
    return 0

  @property
  def group(self) -> None:
    """None: there is no group of equal processes."""
    return None

  @property
  def num_local_workers(self) -> int:
    """The number of workers of the chief's program."""
    return self.num_workers

  @property
  def own(self) -> int:
    """Deprecated: use num_local_workers."""
    aliases.warn('Servers', 'own', 'num_local_workers')
    return self.num_local_workers

  def workers_of(self, device_index: int) -> range:
    """Returns the workers on `devices[device_index]`."""
    return self.towers.workers_of(device_index)

  def device_of(self, worker: int) -> int:
    """Returns the index in `devices` of a worker's device."""
    return self.towers.device_of(worker)

  def process_of(self, device_index: int) -> int:
    """Returns the process of a device."""
    return device_index % self.num_processes

  def batches(
    self, images: tf.Tensor, labels: tf.Tensor
  ) -> list[tower_lib.Batch]:
    """Returns for each device the examples of its process."""
    examples = [(images, labels), *(feed.next() for feed in self.feeds)]
    count = self.num_processes
    # Process p has the workers p, p + P, p + 2 P...
    return [
      tower_lib.Batch(*examples[p], first=p, stride=count)
      for p in map(self.process_of, range(len(self.devices)))
    ]

  def gather_metadata(
    self, rows: Sequence[tf.Tensor], conclude: Callable[[tf.Tensor], _T]
  ) -> tuple[tf.Tensor, list[_T]]:
    """Gathers all rows on the first server and sends the result to all devices.

    Args:
      rows: for each device float32 [its workers, n].
      conclude: a pure function of float32 [workers, n]; only the server calls
        it.

    Returns:
      (float32 [workers, n] on the first server; for each device the result of
      `conclude`.)
    """
    server = self.servers[:1]
    all_rows, (concluded,) = tower_lib.conclude_on(server, rows, conclude)
    values = [self._pull(value) for value in tf.nest.flatten(concluded)]
    return all_rows, [
      tf.nest.pack_sequence_as(concluded, list(device_values))
      for device_values in zip(*values, strict=True)
    ]

  def combine(
    self, messages: Sequence[methods.Message], payloads: Sequence[tf.Tensor]
  ) -> list[list[methods.Received]]:
    """Moves the messages of a round through the servers.

    All processes receive SCATTER messages whole.
    """
    totals = self.totals(messages)
    pulled: list[list[tf.Tensor]] = [[] for _ in self.devices]
    for server, (start, stop) in enumerate(totals.ranges):
      if start == stop:
        continue
      parts = []
      for device, payload in zip(self.devices, payloads, strict=True):
        with tf.device(device):
          parts.append(totals.select_words(server, payload))
      with tf.device(self.servers[server]):
        total = totals.add(server, parts)
      for index, words in enumerate(self._pull(total)):
        pulled[index].append(words)
    received = []
    for device, words in zip(self.devices, pulled, strict=True):
      with tf.device(device):
        received.append(totals.unpack(words))
    return received

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Sends each process the losses of its examples."""
    for process, feed in enumerate(self.feeds, start=1):
      feed.report(step, losses[process :: self.num_processes])

  def totals(self, messages: Sequence[methods.Message]) -> totals_lib.Totals:
    """Returns how the servers split and add the messages of a round."""
    return totals_lib.Totals(messages, self.num_workers, len(self.servers))

  def _pull(self, value: tf.Tensor) -> list[tf.Tensor]:
    """Copies a server's tensor to every device; one transfer per process."""
    copies: list[tf.Tensor] = []
    for index, device in enumerate(self.devices):
      # The first devices belong to different processes.
      is_first = index < self.num_processes
      source = value if is_first else copies[self.process_of(index)]
      with tf.device(device):
        copies.append(tf.identity(source))
    return copies
