"""What an exchange is: how rows and messages get from worker to worker."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Protocol
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.exchange import group as groups
from terngrad.exchange import towers

_T = TypeVar('_T')

# What a worker has of one message of all.
Received = methods.Payloads | methods.Sum | methods.Scattered


class Exchange(Protocol):
  """Where the workers are, and how their messages travel.

  Worker r of N is on one device of one process. A process of Keras or of a
  collective sees its own devices; the chief of parameter servers sees all.
  `tests/exchange/conformance.py` holds what every exchange keeps: whatever the
  way, all devices receive the same bits as on towers.
  """

  @property
  def devices(self) -> tuple[str, ...]:
    """Names of the devices that this process programs, some perhaps twice."""

  @property
  def num_workers(self) -> int:
    """N, of all processes."""

  @property
  def first(self) -> int:
    """The first worker that this process programs."""

  @property
  def own(self) -> int:
    """How many workers it programs; rows of a step's `sent`."""

  @property
  def local_devices(self) -> range:
    """Indices in `devices` of this process's devices."""

  @property
  def group(self) -> groups.Group | None:
    """The group of equal processes, None where there is none."""

  def workers_of(self, device_index: int) -> range:
    """The workers on a device."""

  def device_of(self, worker: int) -> int:
    """The index in `devices` of a worker's device."""

  def batches(self, images: tf.Tensor, labels: tf.Tensor) -> list[towers.Batch]:
    """For each device the batch with its examples.

    Args:
      images: [workers of this process, b, ...].
      labels: int32 [the same, b].
    """

  def gather_metadata(
    self, rows: Sequence[tf.Tensor], conclude: Callable[[tf.Tensor], _T]
  ) -> tuple[tf.Tensor, list[_T]]:
    """Gives every worker's row of numbers to all devices.

    Args:
      rows: for each device float32 [its workers, n].
      conclude: a pure function of float32 [workers, n], the rows in the order
        of the workers.

    Returns:
      (float32 [workers, n]; for each device what `conclude` returned, on it).
    """

  def combine(
    self, messages: Sequence[methods.Message], payloads: Sequence[tf.Tensor]
  ) -> list[list[Received]]:
    """Moves the messages of a round.

    Args:
      messages: of the round.
      payloads: for each device int32 [its workers, words of all messages].

    Returns:
      For each device a list with one entry a message.
    """

  def report(self, step: tf.Tensor, losses: Sequence[tf.Tensor]) -> None:
    """Gives other processes the losses of their examples.

    Args:
      step: int64 [], steps taken before.
      losses: for each device float32 [its workers].
    """
