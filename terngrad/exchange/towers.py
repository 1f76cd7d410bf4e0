"""The in-process exchange: workers on the devices of one machine.

Worker r lives on device r mod M. What the workers of a device have to send is
stacked in the order of that device's workers; every device receives what all
workers sent and decodes it by itself, in the order of the workers. So all
devices compute the same average from the same words, and N workers on one
device do exactly what N workers on N devices do.

The methods of `Towers` that take or return tensors are what every exchange has:
`batches`, `share`, `combine` and `report`. The training step knows no more of
one.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods

_T = TypeVar('_T')


class Batch(NamedTuple):
  """The examples of a step that a device's process has.

  Attributes:
    images: [workers of the process, b, ...].
    labels: int32 [the same, b].
    first: the worker that the first row is of.
    stride: workers from one row to the next.
  """

  images: tf.Tensor
  labels: tf.Tensor
  first: int
  stride: int = 1

  def of(self, worker: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(images, labels) of a worker of the process, int32 []."""
    row = (worker - self.first) // self.stride
    return self.images[row], self.labels[row]


class Towers(NamedTuple):
  """Where the workers live.

  Attributes:
    devices: tuple of device names, one replica of the parameters on each; the
      same name may stand twice.
    num_workers: >= len(devices).
  """

  devices: tuple[str, ...]
  num_workers: int

  def workers_of(self, device_index: int) -> range:
    """The workers on `devices[device_index]`, as a range."""
    return range(device_index, self.num_workers, len(self.devices))

  def device_of(self, worker: int) -> int:
    """The index in `devices` of a worker's device."""
    return worker % len(self.devices)

  @property
  def first(self) -> int:
    """The first worker of this process."""
    return 0

  @property
  def own(self) -> int:
    """How many workers this process has."""
    return self.num_workers

  @property
  def local_devices(self) -> range:
    """Indices in `devices` of this process's devices."""
    return range(len(self.devices))

  @property
  def group(self) -> None:
    """The group of processes: there is none."""
    return None

  def batches(self, images: tf.Tensor, labels: tf.Tensor) -> list[Batch]:
    """Where the devices find their examples; traced once a step.

    Args:
      images: [workers of this process, b, ...].
      labels: int32 [the same, b].

    Returns:
      For each device a `Batch`.
    """
    return [Batch(images, labels, self.first)] * len(self.devices)

  def gather_metadata(
    self, rows: Sequence[tf.Tensor], conclude: Callable[[tf.Tensor], _T]
  ) -> tuple[tf.Tensor, list[_T]]:
    """Tells every worker's row of numbers to all.

    Args:
      rows: for each device float32 [its workers, n].
      conclude: a pure function of float32 [workers, n], the rows in the order
        of the workers; what it returns is what devices need of them.

    Returns:
      (float32 [workers, n], for records; for each device what `conclude`
      returned, on that device).
    """
    return conclude_on(self.devices, rows, conclude)

  def combine(
    self, messages: Sequence[methods.Message], payloads: Sequence[tf.Tensor]
  ) -> list[list[methods.Received]]:
    """Moves the messages of a round.

    Args:
      messages: list of `codec.method.Message`.
      payloads: for each device int32 [its workers, words of all messages].

    Returns:
      For each device a list of `codec.method.Payloads`, `Sum` or `Scattered`,
      one a message.
    """
    received = []
    for device in self.devices:
      with tf.device(device):
        # They stay apart: putting them in the order of the workers would copy
        # them once more.
        parts = [tf.identity(part) for part in payloads]
        received.append(methods.payloads(messages, [methods.Piece(0, parts)]))
    return received

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Tells other processes what became of a step; here there are none.

    Args:
      step: int64 [], steps taken before it.
      losses: for each device float32 [its workers].
    """


def conclude_on(
  devices: Sequence[str],
  rows: Sequence[tf.Tensor],
  conclude: Callable[[tf.Tensor], _T],
) -> tuple[tf.Tensor, list[_T]]:
  """What every device concludes from all workers' rows.

  Args:
    devices: where.
    rows: for each device of workers float32 [its workers, n].
    conclude: see `Towers.gather_metadata`.

  Returns:
    As `Towers.gather_metadata`.
  """
  copies, concluded = [], []
  for device in devices:
    with tf.device(device):
      copies.append(in_order([tf.identity(row) for row in rows]))
      concluded.append(conclude(copies[-1]))
  return copies[0], concluded


def in_order(parts: Sequence[tf.Tensor]) -> tf.Tensor:
  """One tensor [workers, ...] in the order of the workers, from `parts`."""
  return methods.rows_in_order(parts)
