"""Tasks that serve a run, and how its chief talks with them.

Every ps and every worker but the chief, worker 0, is a `tf.distribute.Server`.
What the chief has to know of a task stands in a variable there, and what it
has to do goes through a queue there, both found by their names: TensorFlow
1's own way between sessions. Every call has a time-out. The variable and the
queue belong to the server, so they go with its process. The other end of all
this is `cluster.service`.
"""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from terngrad.cluster import spec as clusters

_STATE = 'terngrad_state'
_ORDERS = 'terngrad_orders'
# Seconds for a short call to a task that is well; a stopped one takes them all.
CALL_TIMEOUT = 10
# Steps taken and the loss of the last, in a task's queue of steps taken.
PROGRESS = [tf.int64, tf.float32]


class Task(NamedTuple):
  """One process of a cluster.

  Attributes:
    job: 'ps' or 'worker'.
    index: in its job.
    address: 'host:port'.
  """

  job: str
  index: int  # type: ignore[assignment]  # hides `tuple.index`
  address: str

  def __str__(self) -> str:
    """As messages name it."""
    return f'{self.job} {self.index} ({self.address})'

  def device(self, name: str = 'CPU:0') -> str:
    """The full name of one of its devices."""
    return f'/job:{self.job}/replica:0/task:{self.index}/device:{name}'


class State(NamedTuple):
  """What a task says of itself.

  Attributes:
    incarnation: of its process: another one after a restart.
    fingerprint: see `cluster.fingerprint`.
    trouble: why it cannot go on, or ''.
  """

  incarnation: str
  fingerprint: Mapping[str, str]
  trouble: str = ''


class LostError(RuntimeError):
  """A task does not answer, or not as a task of this run would."""


class NotJoinedError(RuntimeError):
  """This process is not the task that it was to be, and tells no other."""


def all_tasks(cluster: clusters.Cluster, job: str) -> list[Task]:
  """The tasks of a job of a `cluster.Cluster`."""
  addresses = cluster.jobs.get(job, ())
  return [Task(job, i, address) for i, address in enumerate(addresses)]


def servers_of(cluster: clusters.Cluster) -> list[Task]:
  """All tasks but the chief."""
  return [*all_tasks(cluster, 'ps'), *all_tasks(cluster, 'worker')[1:]]


def answers(task: Task, timeout: float = CALL_TIMEOUT) -> bool:
  """True where a task's server answers within `timeout` seconds.

  A process that was stopped accepts connections but does not answer.
  """
  try:
    with tf.Graph().as_default(), session(task, timeout) as opened:
      opened.list_devices()
    return True
  except tf.errors.OpError:
    return False


def state_of(task: Task, timeout: float = CALL_TIMEOUT) -> State:
  """The `State` of a task.

  Raises:
    LostError: it does not answer, or is not ready yet.
  """
  try:
    with tf.Graph().as_default(), tf.device(task.device()):
      variable = state_variable(tf.constant(''))
      with session(task, timeout) as opened:
        text = opened.run(variable.read_value())
    state = State(**json.loads(text))
    if all(isinstance(value, str) for value in state.fingerprint.values()):
      return state
  except (tf.errors.OpError, AttributeError, TypeError, ValueError) as error:
    raise LostError(f'{task} does not tell its state: {error}') from error
  raise LostError(f'{task} does not tell its state: {state.fingerprint}')


def states_within(
  others: Sequence[Task],
  seconds: float,
  waiting: Callable[[Task], None] = lambda task: None,
) -> dict[Task, State]:
  """The first states of tasks, as they come.

  Args:
    others: tasks of a run.
    seconds: to wait for all of them.
    waiting: called once, with the first that is not there.

  Returns:
    Those of the tasks that came within the time.
  """
  end = time.monotonic() + seconds
  states: dict[Task, State] = {}
  said = False
  while True:
    for task in [task for task in others if task not in states]:
      # A short time each, so that one absent task hides no other.
      try:
        states[task] = state_of(task, timeout=3)
      except LostError:
        if not said:
          waiting(task)
          said = True
    if len(states) == len(others) or time.monotonic() > end:
      return states


def order(task: Task, timeout: float = CALL_TIMEOUT, **what: Any) -> None:
  """Tells a task what to do; see `service.Service.next_order`.

  Args:
    task: a server.
    timeout: seconds.
    **what: of JSON's types.

  Raises:
    LostError: it does not answer.
  """
  try:
    with tf.Graph().as_default(), tf.device(task.device()):
      enqueue = orders_queue().enqueue([json.dumps(what)])
      with session(task, timeout) as opened:
        opened.run(enqueue)
  except tf.errors.OpError as error:
    raise LostError(f'{task} takes no orders: {error}') from error


def end(others: Iterable[Task], why: str = '', has_begun: bool = True) -> None:
  """Lets tasks end.

  Args:
    others: of them those that do not answer are left out.
    why: what went wrong, or ''.
    has_begun: False where the run could not begin.
  """
  for task in others:
    try:
      order(task, do='end', why=why, has_begun=has_begun)
    except LostError:
      # It is gone already, or ended before it could answer.
      continue


def batch_queue(tag: str, dtypes: Iterable[tf.DType]) -> tf.Tensor:
  """The handle of a task's queue of batches, on the device that is current.

  A handle and no `tf.queue.FIFOQueue`: that deletes the queue when it goes.
  """
  return tf.raw_ops.FIFOQueueV2(
    component_types=list(dtypes), capacity=2, shared_name=f'batches_{tag}'
  )


def progress_queue(tag: str) -> tf.Tensor:
  """The handle of a task's queue of steps taken, as `batch_queue`.

  It is read at once; where it is not, a thousand steps pass before one waits.
  """
  return tf.raw_ops.FIFOQueueV2(
    component_types=PROGRESS, capacity=1000, shared_name=f'progress_{tag}'
  )


def new_tag() -> str:
  """A name for queues that nobody else uses."""
  return uuid.uuid4().hex


def connect(cluster: clusters.Cluster) -> None:
  """Makes this process the client of all tasks of a cluster.

  It becomes worker 0 itself, at the address that the cluster has for it, so
  that tasks that were started again find it.

  Args:
    cluster: of the chief; all tasks answer.

  Raises:
    NotJoinedError: its own address is not to be had.
    LostError: one went away meanwhile.
  """
  # With streams the first step often finds what it needs on other tasks not
  # there yet. Read where the connections are made.
  os.environ['TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE'] = 'False'
  try:
    tf.config.experimental_connect_to_cluster(
      tf.train.ClusterSpec(cluster.jobs),
      job_name=cluster.job,
      task_index=cluster.index,
    )
  except (tf.errors.OpError, RuntimeError) as error:
    if 'Could not start gRPC server' in str(error):
      raise NotJoinedError(
        'Expected to listen on the port of this task, received: another '
        'process took it. Stop that, or name another in the list of hosts.'
      ) from error
    raise LostError(f'Expected to join the cluster: {error}') from error


@contextlib.contextmanager
def session(task: Task, timeout: float) -> Iterator[tf.compat.v1.Session]:
  """A session with the server of a task and with no other.

  Args:
    task: a server.
    timeout: seconds that a call may take.

  Yields:
    One on the default graph.
  """
  config = tf.compat.v1.ConfigProto(
    device_filters=[f'/job:{task.job}/task:{task.index}'],
    operation_timeout_in_ms=int(timeout * 1000),
  )
  opened = tf.compat.v1.Session(f'grpc://{task.address}', config=config)
  try:
    yield opened
  finally:
    # As a context it would close itself in a thread after an error; where the
    # task does not answer that prints a traceback which nobody can catch.
    with contextlib.suppress(tf.errors.OpError):
      opened.close()


def state_variable(initial: tf.Tensor) -> tf.compat.v1.Variable:
  """Where a task says its `State`, as JSON; on the device that is current."""
  # Unlike the shape of a queue's elements, a variable's need not agree.
  return tf.compat.v1.Variable(
    initial, name=_STATE, use_resource=True, trainable=False, collections=[]
  )


def orders_queue() -> tf.queue.FIFOQueue:
  """Where a task takes its orders; on the device that is current."""
  return tf.queue.FIFOQueue(16, tf.string, shapes=[[]], shared_name=_ORDERS)
