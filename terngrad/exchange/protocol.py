"""The interface of exchanges, which move rows and messages between workers."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Protocol
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.exchange import group as groups

_T = TypeVar('_T')

# One received message, combined over the workers.
Received = methods.Payloads | methods.Sum | methods.Scattered


class DeviceExamples(Protocol):
  """The examples of one step in the process of a device."""

  def for_worker(self, worker: tf.Tensor) -> tuple[Any, Any]:
    """Returns (images, labels) of a worker of the process, int32 [].

    They are tensors [b, ...], or lists with a tensor per device of the worker.
    """


class Exchange(Protocol):
  """Maps workers to devices and moves their messages.

  Worker r of N runs on one device of one process, or has several devices there;
  see `device_groups`. A Keras process or a collective process sees only its
  local devices. The chief of parameter servers sees all devices. All devices
  receive bit-identical results, whatever the exchange;
  `tests/exchange/conformance.py` tests this.
  """

  @property
  def devices(self) -> tuple[str, ...]:
    """Devices that this process programs; a name may occur twice."""

  @property
  def num_workers(self) -> int:
    """The number of workers N in all processes."""

  @property
  def first(self) -> int:
    """The first worker that this process programs."""

  @property
  def num_local_workers(self) -> int:
    """The number of workers that this process programs."""

  @property
  def local_devices(self) -> range:
    """Indices in `devices` of the devices of this process."""

  @property
  def group(self) -> groups.Group | None:
    """The group of equal processes, or None."""

  def workers_of(self, device_index: int) -> range:
    """Returns the workers on a device; none if it only helps another one."""

  def device_of(self, worker: int) -> int:
    """Returns the index in `devices` of a worker's device."""

  def batches(
    self, images: tf.Tensor, labels: tf.Tensor
  ) -> Sequence[DeviceExamples]:
    """Returns the examples of each device that has workers.

    Args:
      images: [workers of this process, b, ...].
      labels: int32 [workers of this process, b].
    """

  def gather_metadata(
    self, rows: Sequence[tf.Tensor], conclude: Callable[[tf.Tensor], _T]
  ) -> tuple[tf.Tensor, list[_T]]:
    """Gathers one row of numbers per worker on all devices.

    Args:
      rows: for each device that has workers float32 [its workers, n].
      conclude: a pure function of all rows, float32 [workers, n] in the order
        of the workers.

    Returns:
      (float32 [workers, n]; for each device the result of `conclude`, on that
      device.)
    """

  def combine(
    self, messages: Sequence[methods.Message], payloads: Sequence[tf.Tensor]
  ) -> list[list[Received]]:
    """Moves the messages of one round.

    Args:
      messages: of the round.
      payloads: for each device that has workers int32 [its workers, words of
        all messages].

    Returns:
      For each device a list with one entry per message.
    """

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Sends other processes the losses of their examples.

    Args:
      step: int64 [], steps taken before this one.
      losses: for each device that has workers float32 [its workers].
    """
