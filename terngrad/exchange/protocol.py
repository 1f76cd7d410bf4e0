"""The interface of exchanges, which move rows and messages between workers."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Protocol
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.exchange import group as groups
from terngrad.exchange import towers

_T = TypeVar('_T')

# One received message, combined over the workers.
Received = methods.Payloads | methods.Sum | methods.Scattered


class Exchange(Protocol):
  """Maps workers to devices and moves their messages.

  Worker r of N runs on one device of one process. A Keras process or a
  collective process sees only its local devices. The chief of parameter servers
  sees all devices. All devices receive bit-identical results, whatever the
  exchange; `tests/exchange/conformance.py` tests this.
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
    """Returns the workers on a device."""

  def device_of(self, worker: int) -> int:
    """Returns the index in `devices` of a worker's device."""

  def batches(self, images: tf.Tensor, labels: tf.Tensor) -> list[towers.Batch]:
    """Returns the examples of each device's process.

    Args:
      images: [workers of this process, b, ...].
      labels: int32 [workers of this process, b].
    """

  def gather_metadata(
    self, rows: Sequence[tf.Tensor], conclude: Callable[[tf.Tensor], _T]
  ) -> tuple[tf.Tensor, list[_T]]:
    """Gathers one row of numbers per worker on all devices.

    Args:
      rows: for each device float32 [its workers, n].
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
      payloads: for each device int32 [its workers, words of all messages].

    Returns:
      For each device a list with one entry per message.
    """

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Sends other processes the losses of their examples.

    Args:
      step: int64 [], steps taken before this one.
      losses: for each device float32 [its workers].
    """
