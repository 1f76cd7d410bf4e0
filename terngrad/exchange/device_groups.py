"""Workers of several devices: K devices compute the gradient of one worker.

The first device of a group leads: it averages the gradients of the group,
encodes the mean, and sends and receives the worker's messages. The others get
copies of what it received, and every device decodes. Words are smaller than the
float32 mean, unless there are very many workers; and a device decodes and
updates its replica by the same code, with the same kernels, in every layout.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.exchange import group as groups
from terngrad.exchange import protocol

_T = TypeVar('_T')


class DeviceRows(NamedTuple):
  """The examples of one step, with a row for each device of this process.

  Attributes:
    images: [devices of the process, b, ...]; ragged if their b differ.
    labels: int32 [devices of the process, b].
    first: the worker of the first device.
    size: devices of a worker.
  """

  images: tf.Tensor
  labels: tf.Tensor
  first: int
  size: int

  def for_worker(
    self, worker: tf.Tensor
  ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Returns images and labels of each device of a worker, int32 []."""
    begin = (worker - self.first) * self.size
    rows = [begin + number for number in range(self.size)]
    return [self.images[row] for row in rows], [
      self.labels[row] for row in rows
    ]


@dataclasses.dataclass(frozen=True)
class DeviceGroups:
  """An exchange whose workers have several devices each.

  Attributes:
    leaders: the exchange of the first devices of all groups.
    devices: of this program: K consecutive ones of a process are a group. With
      several processes in one program they are in round-robin order of the
      processes, as in `server.Servers`.
    rows_are_devices: True if the rows of `batches` belong to devices, False if
      they belong to workers.
  """

  leaders: protocol.Exchange
  devices: tuple[str, ...]
  rows_are_devices: bool = False

  @property
  def size(self) -> int:
    """K, the number of devices of a worker."""
    return len(self.devices) // len(self.leaders.devices)

  @property
  def num_workers(self) -> int:
    """The number of workers in all processes."""
    return self.leaders.num_workers

  @property
  def first(self) -> int:
    """The first worker that this process programs."""
    return self.leaders.first

  @property
  def num_local_workers(self) -> int:
    """The number of workers that this process programs."""
    return self.leaders.num_local_workers

  @property
  def local_devices(self) -> range:
    """Indices in `devices` of the devices of this process."""
    return range(0, len(self.devices), self._num_processes)

  @property
  def group(self) -> groups.Group | None:
    """The group of equal processes, or None."""
    return self.leaders.group

  @property
  def _num_processes(self) -> int:
    """The number of processes that this program programs."""
    return self.leaders.local_devices.step

  def workers_of(self, device_index: int) -> range:
    """Returns the worker that a device leads; an empty range for others."""
    number = device_index // self._num_processes
    if number % self.size:
      return range(0)
    return self.leaders.workers_of(self._leader(device_index))

  def device_of(self, worker: int) -> int:
    """Returns the index in `devices` of the device that leads a worker."""
    processes = self._num_processes
    number, process = divmod(self.leaders.device_of(worker), processes)
    return number * self.size * processes + process

  def batches(
    self, images: tf.Tensor, labels: tf.Tensor
  ) -> Sequence[protocol.DeviceExamples]:
    """Returns the examples of the workers of each leading device."""
    if self.rows_are_devices:
      rows = DeviceRows(images, labels, self.first, self.size)
      return [rows] * len(self.leaders.devices)
    return self.leaders.batches(images, labels)

  def gather_metadata(
    self, rows: Sequence[tf.Tensor], conclude: Callable[[tf.Tensor], _T]
  ) -> tuple[tf.Tensor, list[_T]]:
    """Gathers a row per worker; see `protocol.Exchange.gather_metadata`."""
    all_rows, concluded = self.leaders.gather_metadata(rows, conclude)
    return all_rows, self._copy(concluded)

  def combine(
    self, messages: Sequence[methods.Message], payloads: Sequence[tf.Tensor]
  ) -> list[list[methods.Received]]:
    """Moves the messages of a round; see `protocol.Exchange.combine`."""
    return self._copy(self.leaders.combine(messages, payloads))

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Sends other processes the losses of their workers."""
    self.leaders.report(step, losses)

  def _leader(self, device_index: int) -> int:
    """Returns the index in `leaders.devices` of the leader of a device."""
    number, process = divmod(device_index, self._num_processes)
    return number // self.size * self._num_processes + process

  def _copy(self, values: Sequence[Any]) -> list[Any]:
    """Copies the tensors on each leader to the other devices of its group."""
    found = []
    for index, device in enumerate(self.devices):
      value = values[self._leader(index)]
      if not self.workers_of(index):
        with tf.device(device):
          value = _copy_tensors(value)
      found.append(value)
    return found


def _copy_tensors(value: Any) -> Any:
  """Copies the tensors in a structure, each once, to the current device."""
  copies: dict[int, tf.Tensor] = {}

  def copy(leaf: Any) -> Any:
    if not tf.is_tensor(leaf):
      return leaf
    if id(leaf) not in copies:
      copies[id(leaf)] = tf.identity(leaf)
    return copies[id(leaf)]

  return tf.nest.map_structure(copy, value)


def check_size(count: int, size: int) -> None:
  """Raises ValueError unless K = `size` divides the devices of a process."""
  if size < 1 or count % size:
    raise ValueError(
      f'devices_per_worker: expected a divisor of the {count} devices of this '
      f'process, received {size}. Use {count} if the process is one worker, or '
      '1.'
    )


def make(
  leaders: protocol.Exchange,
  devices: tuple[str, ...],
  rows_are_devices: bool = False,
) -> protocol.Exchange:
  """Makes `DeviceGroups`; returns `leaders` if every device leads."""
  if len(devices) == len(leaders.devices):
    return leaders
  return DeviceGroups(leaders, devices, rows_are_devices)


def leading_devices(exchange: protocol.Exchange) -> list[int]:
  """Returns the indices in `devices` of the devices that have workers."""
  return [i for i in range(len(exchange.devices)) if exchange.workers_of(i)]


def devices_per_worker(exchange: protocol.Exchange) -> int:
  """Returns K; 1 if a device has one worker or several."""
  return exchange.size if isinstance(exchange, DeviceGroups) else 1


def group_of(exchange: protocol.Exchange, device_index: int) -> range:
  """Returns the indices of the devices that a device with workers leads."""
  step = exchange.local_devices.step
  size = devices_per_worker(exchange)
  return range(device_index, device_index + size * step, step)


def average(rows: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
  """Averages the tensors of several devices, on the current device.

  Args:
    rows: for each device a list of float32 tensors. They are added in the order
      of the devices, so that the result has the same bits in every run.
  """
  scale = 1.0 / len(rows)
  return [
    functools.reduce(operator.add, column) * scale
    for column in zip(*rows, strict=True)
  ]
