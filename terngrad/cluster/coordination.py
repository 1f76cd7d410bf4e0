"""Coordination of a run's processes, besides the training steps.

The processes join, compare their options, start from the chief's state, verify
before each checkpoint that they are equal, and end together. With one process
all of this does nothing.
"""

import contextlib
import hashlib
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from typing import Protocol

import numpy as np
import tensorflow as tf

from terngrad import errors
from terngrad.cluster import devices
from terngrad.cluster import equality
from terngrad.cluster import fingerprint
from terngrad.cluster import spec as cluster_lib
from terngrad.cluster import watchdog
from terngrad.exchange import algorithms
from terngrad.exchange import collective
from terngrad.exchange import device_groups
from terngrad.exchange import group as groups
from terngrad.exchange import protocol
from terngrad.exchange import towers

_FINGERPRINT_BYTES = 2**14
# TensorFlow detects a silent task first, by an error like that of a lost task.
GRACE_SECONDS = 10.0


class ReplicaVariables(Protocol):
  """The part of a `step.replicas.Replica` that is compared."""

  def variables(self) -> Sequence[tf.Variable]:
    """Returns all variables, in the same order in every process."""

  def is_local(self) -> Sequence[bool]:
    """Returns for each variable whether it is local to this device."""


class JoinOptions(Protocol):
  """The part of a `config.cluster.ClusterOptions` that `join` needs."""

  @property
  def tasks(self) -> cluster_lib.Cluster | None:
    """The cluster, or None for a single process."""

  @property
  def collective(self) -> str:
    """Collective algorithm: 'auto' or one of `algorithms.NAMES`."""

  @property
  def communication(self) -> str:
    """TensorFlow's collective implementation, of `group.COMMUNICATIONS`."""

  @property
  def step_timeout(self) -> float:
    """Seconds without a sign of life after which a task is lost."""

  @property
  def bandwidth(self) -> float:
    """Bits per second of a process, for the choice of an algorithm."""

  @property
  def latency(self) -> float:
    """Seconds of a message, for the choice of an algorithm."""


def join(
  cluster: JoinOptions,
  num_gpus: int,
  num_workers: int,
  names: tuple[str, ...] = (),
  devices_per_worker: int = 1,
) -> protocol.Exchange:
  """Creates the exchange; blocks until all processes have joined.

  TensorFlow must not be in use before.

  Args:
    cluster: a `config.cluster.ClusterOptions`, or an object with these options.
    num_gpus: number of devices of this process.
    num_workers: number of nodes of all processes; a device without node is left
      out.
    names: names of this process's devices, already configured; () for GPUs, or
      logical CPU devices on a machine without GPU.
    devices_per_worker: K, devices of a node, see `device_groups`; above 1 each
      K devices have one node.

  Raises:
    errors.ConfigError: the port is in use, nccl is requested without GPU, or a
      device of `names` does not exist.
  """
  tasks = cluster.tasks
  if tasks is None:
    count = min(num_gpus, num_workers * devices_per_worker)
    names = names or devices.tower_devices(count)
    devices.check_exist(names)
    leaders = towers.Towers(names[::devices_per_worker], num_workers)
    return device_groups.make(leaders, names)
  num_local = num_workers // len(tasks.jobs['worker'])
  count = min(num_gpus, num_local * devices_per_worker)
  check_port(tasks)
  gpus = devices.configure(count)
  if cluster.communication == groups.NCCL and not gpus:
    raise errors.ConfigError(
      'communication: expected a GPU for nccl, received a machine without one. '
      f'Leave --communication={groups.NCCL} out.'
    )
  group = groups.Group(tasks, cluster.step_timeout, cluster.communication)
  names = names or devices.tower_devices(count)
  devices.check_exist(names)
  network = algorithms.Link(cluster.bandwidth, cluster.latency)
  leading = names[::devices_per_worker]
  members = collective.Collective(
    group, leading, num_workers, cluster.collective, network
  )
  return device_groups.make(members, names)


def check_port(cluster: cluster_lib.Cluster) -> None:
  """Calls `spec.check_port`, and raises its error as `errors.ConfigError`."""
  with errors.as_config_error():
    cluster_lib.check_port(cluster)


def assert_same(
  exchange: protocol.Exchange, options: Mapping[str, Any], **choices: Any
) -> None:
  """Verifies that all processes have the same options.

  It compares `options` by name, and further fields of
  `fingerprint.fingerprint`.

  Raises:
    errors.ConfigError: two processes differ. The message names the field and
      the task.
  """
  if exchange.group is None:
    return
  choices |= {name: _shorten(value) for name, value in options.items()}
  encoded = fingerprint.to_bytes(
    fingerprint.fingerprint(**choices), _FINGERPRINT_BYTES
  )
  gathered = exchange.group.all_gather_now(
    np.frombuffer(encoded, np.int32)[np.newaxis]
  )
  with errors.as_config_error():
    fields = [
      fingerprint.from_bytes(row.tobytes(), f'worker {rank}')
      for rank, row in enumerate(gathered)
    ]
    for rank, received in enumerate(fields):
      fingerprint.check_equal(fields[0], received, f'worker {rank}')


def _shorten(value: Any) -> str:
  text = str(value)
  return (
    text
    if len(text) <= 80
    else f'{text[:40]}... {hashlib.sha256(text.encode()).hexdigest()[:16]}'
  )


def broadcast_start(
  exchange: protocol.Exchange,
  copies: Sequence[ReplicaVariables],
  numbers: tuple[int, ...],
) -> tuple[int, ...]:
  """Broadcasts the chief's variables and numbers to all processes.

  Returns:
    The chief's numbers.
  """
  group = exchange.group
  if group is None:
    return numbers
  for variables in zip(*(copy.variables() for copy in copies), strict=True):
    value = group.broadcast(tf.convert_to_tensor(variables[0]))
    for variable in variables:
      variable.assign(value)
  received = group.broadcast(tf.constant(numbers, tf.int32))
  return tuple(int(number) for number in received)


def chief_decides(exchange: protocol.Exchange, *decisions: bool) -> list[bool]:
  """Returns the decisions of the chief in all processes.

  `decisions` are ignored in other processes, which pass as many.
  """
  if exchange.group is None:
    return [*decisions]
  rows = exchange.group.all_gather_now(np.array([decisions], np.int32))
  return [bool(one) for one in rows[0]]


def assert_equal(
  exchange: protocol.Exchange, replica: ReplicaVariables, names: Sequence[str]
) -> None:
  """Verifies that the processes' replicas are equal, except local variables.

  Raises:
    errors.TrainingError: two replicas differ. The message names the variable
      and the task.
  """
  if exchange.group is None:
    return
  compared = [
    (name, equality.digest(variable.numpy()))
    for name, variable, is_local in zip(
      names, replica.variables(), replica.is_local(), strict=True
    )
    if not is_local
  ]
  shared, digests = zip(*compared, strict=True)
  gathered = exchange.group.all_gather_now(np.stack(digests)[np.newaxis])
  workers = [f'worker {rank}' for rank in range(len(gathered))]
  equality.check(list(gathered), shared, workers)


def barrier(exchange: protocol.Exchange, step: int) -> None:
  """Waits until all processes have finished and the chief has written."""
  if exchange.group is not None:
    exchange.group.all_gather_now(np.array([step], np.int32))


@contextlib.contextmanager
def time_limit(
  cluster: cluster_lib.Cluster | None,
  seconds: float,
  what: str,
  limit: Callable[
    [cluster_lib.Cluster, float, str], AbstractContextManager[None]
  ] = watchdog.limit,
) -> Iterator[None]:
  """Ends the process if a task is lost or late, and names that task.

  It raises errors of operations that failed in this process.

  Args:
    cluster: the cluster; None does nothing.
    seconds: time limit of the block.
    what: name of the block, for the message.
    limit: `watchdog.limit` or `watchdog.limit_start`.
  """
  if cluster is None:
    yield
    return
  try:
    with limit(cluster, seconds, what):
      yield
  except tf.errors.OpError as error:
    if not _may_be_loss(error):
      raise
    lost = watchdog.lost_tasks(cluster, error.message)
    is_loss = isinstance(error, _LOSS_ERRORS) or any(
      text in error.message for text in (_ABORTED, _RESTARTED)
    )
    if not lost and not is_loss:
      raise
    watchdog.end(f'{what}: {watchdog.loss_report(lost, error.message)}')


# Errors of TensorFlow's runtime that mean nothing but a task lost or late.
_LOSS_ERRORS = (
  tf.errors.AbortedError,
  tf.errors.DeadlineExceededError,
  tf.errors.UnavailableError,
)
# Errors that it raises if a task is lost or late. Operations raise the others
# too, such as InternalError of a GPU. After a loss the message names a task or
# contains `_ABORTED`, or a task does not answer.
LOST_TASK_ERRORS = (
  *_LOSS_ERRORS,
  tf.errors.CancelledError,
  tf.errors.FailedPreconditionError,
  tf.errors.InternalError,
)
_ABORTED = 'Collective ops is aborted'
# The first process is new: it knows none of those that were there before. The
# error is an InvalidArgumentError, which shapes that differ raise too.
_RESTARTED = 'must be registered before sending heartbeat'


def _may_be_loss(error: tf.errors.OpError) -> bool:
  """Whether losses raise such errors; an operation may raise them too."""
  return isinstance(error, LOST_TASK_ERRORS) or _RESTARTED in error.message


def loss_of(error: Exception) -> str | None:
  """Returns the line that says what was lost; None for other errors."""
  if not isinstance(error, tf.errors.OpError):
    return None
  if not _may_be_loss(error):
    return None
  # Errors of traced functions have a heading and a list of operations first.
  lines = [line.strip() for line in error.message.splitlines()]
  saying = [line for line in lines if _ABORTED in line or 'task' in line]
  return [*saying, *filter(None, lines), type(error).__name__][0]
