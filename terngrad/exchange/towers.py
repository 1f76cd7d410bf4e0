"""The in-process exchange: workers on the devices of one machine.

Worker r runs on device r mod M. The messages of a device's workers are stacked
in the order of the workers. Every device receives the messages of all workers
and decodes them in the order of the workers. All devices therefore compute the
same mean from the same words, and N workers on one device compute exactly what
N workers on N devices compute.

`Towers` implements `protocol.Exchange`; the training step uses no other
interface.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeVar

import tensorflow as tf

from terngrad import aliases
from terngrad.codec import method as methods

_T = TypeVar('_T')


class Batch(NamedTuple):
  """The examples of one step in the process of a device.

  Attributes:
    images: [workers of the process, b, ...].
    labels: int32 [workers of the process, b].
    first: the worker of the first row.
    stride: difference between the workers of consecutive rows.
  """

  images: tf.Tensor
  labels: tf.Tensor
  first: int
  stride: int = 1

  def for_worker(self, worker: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (images, labels) of a worker of the process, int32 []."""
    row = (worker - self.first) // self.stride
    return self.images[row], self.labels[row]


class Towers(NamedTuple):
  """The devices of one process, and the workers on them.

  Attributes:
    devices: device names, one replica of the parameters on each; a name may
      occur twice.
    num_workers: number of workers, at least len(devices).
    keeps_words: True if the messages of the workers are read after a step.
      False: workers of a single device add float32 gradients without messages;
      see `reduce.plain`.
  """

  devices: tuple[str, ...]
  num_workers: int
  keeps_words: bool = False

  def workers_of(self, device_index: int) -> range:
    """Returns the workers on `devices[device_index]`."""
    return range(device_index, self.num_workers, len(self.devices))

  def device_of(self, worker: int) -> int:
    """Returns the index in `devices` of a worker's device."""
    return worker % len(self.devices)

  @property
  def first(self) -> int:
    """The first worker of this process."""
    return 0

  @property
  def num_local_workers(self) -> int:
    """The number of workers of this process."""
    return self.num_workers

  @property
  def own(self) -> int:
    """Deprecated: use num_local_workers."""
    aliases.warn('Towers', 'own', 'num_local_workers')
    return self.num_local_workers

  @property
  def local_devices(self) -> range:
    """Indices in `devices` of this process's devices."""
    return range(len(self.devices))

  @property
  def group(self) -> None:
    """None: there is no group of processes."""
    return None

  def batches(self, images: tf.Tensor, labels: tf.Tensor) -> list[Batch]:
    """Returns the examples of each device; called once per traced step.

    Args:
      images: [workers of this process, b, ...].
      labels: int32 [workers of this process, b].

    Returns:
      One `Batch` per device.
    """
    return [Batch(images, labels, self.first)] * len(self.devices)

  def gather_metadata(
    self, rows: Sequence[tf.Tensor], conclude: Callable[[tf.Tensor], _T]
  ) -> tuple[tf.Tensor, list[_T]]:
    """Gathers one row of numbers per worker on all devices.

    Args:
      rows: for each device float32 [its workers, n].
      conclude: a pure function of all rows, float32 [workers, n] in the order
        of the workers.

    Returns:
      (float32 [workers, n], for records; for each device the result of
      `conclude`, on that device.)
    """
    return conclude_on(self.devices, rows, conclude)

  def combine(
    self, messages: Sequence[methods.Message], payloads: Sequence[tf.Tensor]
  ) -> list[list[methods.Received]]:
    """Moves the messages of a round.

    Args:
      messages: of the round.
      payloads: for each device int32 [its workers, words of all messages].

    Returns:
      For each device a list of `codec.method.Payloads`, `Sum` or `Scattered`,
      one per message.
    """
    received = []
    for device in self.devices:
      with tf.device(device):
        # The parts are not merged: sorting rows by worker would copy them
        # once more.
        parts = [tf.identity(part) for part in payloads]
        received.append(methods.payloads(messages, [methods.Piece(0, parts)]))
    return received

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Does nothing, because there are no other processes.

    Args:
      step: int64 [], steps taken before this one.
      losses: for each device float32 [its workers].
    """


def conclude_on(
  devices: Sequence[str],
  rows: Sequence[tf.Tensor],
  conclude: Callable[[tf.Tensor], _T],
) -> tuple[tf.Tensor, list[_T]]:
  """Calls `conclude` with all workers' rows on every device.

  Args:
    devices: names of the devices.
    rows: for each device of workers float32 [its workers, n].
    conclude: as in `Towers.gather_metadata`.

  Returns:
    As `Towers.gather_metadata`.
  """
  copies, concluded = [], []
  for device in devices:
    with tf.device(device):
      copies.append(order_by_worker([tf.identity(row) for row in rows]))
      concluded.append(conclude(copies[-1]))
  return copies[0], concluded


def order_by_worker(parts: Sequence[tf.Tensor]) -> tf.Tensor:
  """Returns one tensor [workers, ...] in the order of the workers."""
  return methods.stack_by_worker(parts)
