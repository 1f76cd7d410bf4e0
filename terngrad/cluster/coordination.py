"""What the processes of a run do together, beside the steps.

They join, compare what they are, begin from the chief's state, prove that
they are equal before each checkpoint, and end together. With one process
there is nothing to do.
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
from terngrad.exchange import group as groups
from terngrad.exchange import protocol
from terngrad.exchange import towers

_FINGERPRINT_BYTES = 2**14
# The runtime gives up a silent task first, as an error like that of a lost one.
GRACE_SECONDS = 10.0


class Replica(Protocol):
  """What is compared of a `step.replicas.Replica`."""

  def variables(self) -> Sequence[tf.Variable]:
    """All, in an order that is the same in every process."""

  def own(self) -> Sequence[bool]:
    """For each variable whether it is this device's alone."""


class Joining(Protocol):
  """What `join` needs of a `config.cluster.Cluster`."""

  @property
  def tasks(self) -> cluster_lib.Cluster | None:
    """None for a single process."""

  @property
  def collective(self) -> str:
    """See `collective.Collective`."""

  @property
  def communication(self) -> str:
    """See `group.Group`."""

  @property
  def step_timeout(self) -> float:
    """Seconds."""

  @property
  def bandwidth(self) -> float:
    """Bits a second."""

  @property
  def latency(self) -> float:
    """Seconds."""


def join(
  cluster: Joining,
  num_gpus: int,
  num_workers: int,
  names: tuple[str, ...] = (),
) -> towers.Towers | collective.Collective:
  """Makes the exchange; blocks until all processes are there.

  Nothing may have used TensorFlow.

  Args:
    cluster: `config.cluster.Cluster`, or what has these options of it.
    num_gpus: devices of this process.
    num_workers: nodes of all processes; a device without any is left out.
    names: of the devices of this process, which are configured; () for GPUs, or
      logical CPU devices without any.

  Raises:
    errors.ConfigError: the port is taken, nccl is asked for where there is no
      GPU, or a device of `names` is not there.
  """
  tasks = cluster.tasks
  if tasks is None:
    names = names or devices.tower_devices(min(num_gpus, num_workers))
    devices.check_there(names)
    return towers.Towers(names, num_workers)
  own = num_workers // len(tasks.jobs['worker'])
  count = min(num_gpus, own)
  check_port(tasks)
  gpus = devices.configure(count)
  if cluster.communication == groups.NCCL and not gpus:
    raise errors.ConfigError(
      'communication: expected a GPU for nccl, received a machine without one. '
      f'Leave --communication={groups.NCCL} out.'
    )
  group = groups.Group(tasks, cluster.step_timeout, cluster.communication)
  names = names or devices.tower_devices(count)
  devices.check_there(names)
  network = algorithms.Network(cluster.bandwidth, cluster.latency)
  return collective.Collective(
    group, names, num_workers, cluster.collective, network
  )


def check_port(cluster: cluster_lib.Cluster) -> None:
  """`spec.check_port`, whose refusal is an `errors.ConfigError`."""
  with errors.as_config_error():
    cluster_lib.check_port(cluster)


def assert_same(
  exchange: protocol.Exchange, options: Mapping[str, Any], **choices: Any
) -> None:
  """Compares what the processes are.

  Args:
    exchange: from `join`.
    options: those that must be the same, by name.
    **choices: see `fingerprint.fingerprint`.

  Raises:
    errors.ConfigError: two differ; names the field and the task.
  """
  if exchange.group is None:
    return
  choices |= {name: _short(value) for name, value in options.items()}
  own = fingerprint.to_bytes(
    fingerprint.fingerprint(**choices), _FINGERPRINT_BYTES
  )
  everyone = exchange.group.all_gather_now(
    np.frombuffer(own, np.int32)[np.newaxis]
  )
  with errors.as_config_error():
    fields = [
      fingerprint.from_bytes(row.tobytes(), f'worker {rank}')
      for rank, row in enumerate(everyone)
    ]
    for rank, received in enumerate(fields):
      fingerprint.check_equal(fields[0], received, f'worker {rank}')


def _short(value: Any) -> str:
  text = str(value)
  return (
    text
    if len(text) <= 80
    else f'{text[:40]}... {hashlib.sha256(text.encode()).hexdigest()[:16]}'
  )


def broadcast_start(
  exchange: protocol.Exchange,
  copies: Sequence[Replica],
  numbers: tuple[int, ...],
) -> tuple[int, ...]:
  """Gives every process the chief's variables and numbers.

  Args:
    exchange: from `join`.
    copies: replicas of this process.
    numbers: those of the chief count.

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
  told = group.broadcast(tf.constant(numbers, tf.int32))
  return tuple(int(number) for number in told)


def assert_equal(
  exchange: protocol.Exchange, replica: Replica, names: Sequence[str]
) -> None:
  """Proves that the processes' replicas are equal, but for what is their own.

  Args:
    exchange: from `join`.
    replica: of this process.
    names: of its variables.

  Raises:
    errors.TrainingError: two differ; names variable and task.
  """
  if exchange.group is None:
    return
  same = [
    (name, equality.digest(variable.numpy()))
    for name, variable, own in zip(
      names, replica.variables(), replica.own(), strict=True
    )
    if not own
  ]
  shared, digests = zip(*same, strict=True)
  everyone = exchange.group.all_gather_now(np.stack(digests)[np.newaxis])
  workers = [f'worker {rank}' for rank in range(len(everyone))]
  equality.check(list(everyone), shared, workers)


def barrier(exchange: protocol.Exchange, step: int) -> None:
  """Waits until all have come to their end, and the chief has written."""
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
  """Ends the process where a task is lost or late, and says which.

  Args:
    cluster: None does nothing.
    seconds: that the block may take.
    what: the block's name, for the message.
    limit: of `watchdog`.
  """
  if cluster is None:
    yield
    return
  try:
    with limit(cluster, seconds, what):
      yield
  except _LOST as error:
    watchdog.end(f'{what}: {watchdog.explain(cluster, error.message)}')


# What TensorFlow's runtime raises where a task is gone or late.
_LOST = (
  tf.errors.AbortedError,
  tf.errors.CancelledError,
  tf.errors.DeadlineExceededError,
  tf.errors.FailedPreconditionError,
  tf.errors.InternalError,
  tf.errors.UnavailableError,
)
