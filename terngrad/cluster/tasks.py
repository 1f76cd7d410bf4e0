"""The tasks of a run, and how the chief communicates with them.

Every ps, and every worker except the chief (worker 0), runs a
`tf.distribute.Server`. The chief reads a task's state from a variable on that
task, and sends orders through a queue there. Both are found by their names,
which is how sessions of TensorFlow 1 share resources. Every call has a timeout.
The variable and the queue belong to the server and end with its process.
`cluster.service` is the other side.
"""

import concurrent.futures
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

from terngrad import signal_guard
from terngrad.cluster import spec as clusters

_STATE = 'terngrad_state'
_ORDERS = 'terngrad_orders'
# Time limit of a short call in seconds; a stopped task always takes all of it.
CALL_TIMEOUT = 10
# Most tasks that are called at once.
_THREADS = 64
# Types in a task's progress queue: steps taken, loss of the last step.
PROGRESS = [tf.int64, tf.float32]


class Task(NamedTuple):
  """One process of a cluster.

  Attributes:
    job: 'ps' or 'worker'.
    index: index in its job.
    address: 'host:port'.
  """

  job: str
  index: int  # type: ignore[assignment]  # hides `tuple.index`
  address: str

  def __str__(self) -> str:
    """Formats the task for messages."""
    return f'{self.job} {self.index} ({self.address})'

  def device(self, name: str = 'CPU:0') -> str:
    """Returns the full name of one of the task's devices."""
    return f'/job:{self.job}/replica:0/task:{self.index}/device:{name}'


class TaskState(NamedTuple):
  """The state that a task publishes.

  Attributes:
    incarnation: identifier of its process, which changes at a restart.
    fingerprint: see `cluster.fingerprint`.
    trouble: why the task cannot continue, or ''.
  """

  incarnation: str
  fingerprint: Mapping[str, str]
  trouble: str = ''


class LostError(RuntimeError):
  """A task does not answer, or its answer is not that of a task of this run."""


class NotJoinedError(RuntimeError):
  """This process could not become its task; no other task is informed."""


def all_tasks(cluster: clusters.Cluster, job: str) -> list[Task]:
  """Returns the tasks of a job."""
  addresses = cluster.jobs.get(job, ())
  return [Task(job, i, address) for i, address in enumerate(addresses)]


def servers_of(cluster: clusters.Cluster) -> list[Task]:
  """Returns all tasks except the chief."""
  return [*all_tasks(cluster, 'ps'), *all_tasks(cluster, 'worker')[1:]]


def answers(task: Task, timeout: float = CALL_TIMEOUT) -> bool:
  """Returns whether a task's server answers within `timeout` seconds.

  A stopped process accepts connections but does not answer.
  """
  try:
    with tf.Graph().as_default(), session(task, timeout) as opened:
      opened.list_devices()
    return True
  except tf.errors.OpError:
    return False


def state_of(task: Task, timeout: float = CALL_TIMEOUT) -> TaskState:
  """Reads the `TaskState` of a task.

  Raises:
    LostError: the task does not answer, or is not ready yet.
  """
  try:
    with tf.Graph().as_default(), tf.device(task.device()):
      variable = state_variable(tf.constant(''))
      with session(task, timeout) as opened:
        text = opened.run(variable.read_value())
    state = TaskState(**json.loads(text))
    if all(isinstance(value, str) for value in state.fingerprint.values()):
      return state
  except (tf.errors.OpError, AttributeError, TypeError, ValueError) as error:
    raise LostError(f'{task}: expected its state, received: {error}') from error
  raise LostError(f'{task}: expected its state, received: {state.fingerprint}')


def wait_for_states(
  others: Sequence[Task],
  seconds: float,
  waiting: Callable[[Task], None] = lambda task: None,
) -> dict[Task, TaskState]:
  """Waits for the first states of tasks.

  Args:
    others: tasks of a run.
    seconds: time limit for all of them.
    waiting: called once, with the first missing task.

  Returns:
    The states of the tasks that answered in time.
  """
  end = time.monotonic() + seconds
  states: dict[Task, TaskState] = {}
  has_reported = False

  def look(task: Task) -> None:
    with contextlib.suppress(LostError):
      if time.monotonic() <= end:
        states[task] = state_of(task, timeout=3)

  while True:
    _for_each([task for task in others if task not in states], look)
    missing = [task for task in others if task not in states]
    if not missing or time.monotonic() > end:
      return states
    if not has_reported:
      waiting(missing[0])
      has_reported = True


def _for_each(some: Iterable[Task], function: Callable[[Task], None]) -> None:
  """Calls a function with each task, many at once: silent ones take long."""
  with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
    # The main thread handles signals.
    with signal_guard.block_signals():
      calls = [pool.submit(function, task) for task in some]
    for call in calls:
      call.result()


def send_order(
  task: Task, timeout: float = CALL_TIMEOUT, **fields: Any
) -> None:
  """Sends an order to a task, which reads it by `TaskServer.next_order`.

  The timeout is in seconds. The order consists of values of JSON types.

  Raises:
    LostError: the task does not answer.
  """
  try:
    with tf.Graph().as_default(), tf.device(task.device()):
      enqueue = orders_queue().enqueue([json.dumps(fields)])
      with session(task, timeout) as opened:
        opened.run(enqueue)
  except tf.errors.OpError as error:
    raise LostError(
      f'{task}: expected to accept an order, received: {error}'
    ) from error


def end_tasks(
  others: Iterable[Task], why: str = '', has_begun: bool = True
) -> None:
  """Orders tasks to end.

  Args:
    others: the tasks; those that do not answer are skipped.
    why: reason of a failure, or ''.
    has_begun: False if the run could not begin.
  """

  def end(task: Task) -> None:
    # A lost task has already ended, or ended before it answered.
    with contextlib.suppress(LostError):
      send_order(task, do='end', why=why, has_begun=has_begun)

  _for_each(others, end)


def batch_queue(tag: str, dtypes: Iterable[tf.DType]) -> tf.Tensor:
  """Returns the handle of a task's batch queue, on the current device.

  A handle instead of a `tf.queue.FIFOQueue`, which deletes the queue when it is
  garbage-collected.
  """
  return tf.raw_ops.FIFOQueueV2(
    component_types=list(dtypes), capacity=2, shared_name=f'batches_{tag}'
  )


def progress_queue(tag: str) -> tf.Tensor:
  """Returns the handle of a task's progress queue, on the current device.

  A reader empties it at once. Without reader, a producer blocks after a
  thousand steps.
  """
  return tf.raw_ops.FIFOQueueV2(
    component_types=PROGRESS, capacity=1000, shared_name=f'progress_{tag}'
  )


def new_tag() -> str:
  """Returns a unique name for queues."""
  return uuid.uuid4().hex


def connect(cluster: clusters.Cluster) -> None:
  """Makes this process the client of all tasks of a cluster, which must answer.

  This process becomes worker 0 at its address in the cluster, so that restarted
  tasks find it.

  Raises:
    NotJoinedError: this process's port cannot be opened.
    LostError: a task ended meanwhile.
  """
  # With streaming, the first step often does not find its resources on other
  # tasks yet. TensorFlow reads this variable when it connects.
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
        "Expected to listen on this task's port, received: another process "
        'uses it. Stop that process, or choose another port for this task.'
      ) from error
    raise LostError(
      f'Expected to connect to every task, received: {error}'
    ) from error


@contextlib.contextmanager
def session(task: Task, timeout: float) -> Iterator[tf.compat.v1.Session]:
  """Opens a session with the server of one task and with no other.

  It is on the default graph. `timeout` limits each call, in seconds.
  """
  config = tf.compat.v1.ConfigProto(
    device_filters=[f'/job:{task.job}/task:{task.index}'],
    operation_timeout_in_ms=int(timeout * 1000),
  )
  opened = tf.compat.v1.Session(f'grpc://{task.address}', config=config)
  try:
    yield opened
  finally:
    # As a context manager it would close in a thread after an error. If the
    # task does not answer, that prints a traceback that cannot be caught.
    with contextlib.suppress(tf.errors.OpError):
      opened.close()


def state_variable(initial: tf.Tensor) -> tf.compat.v1.Variable:
  """Creates the variable of a task's `TaskState`, JSON, on this device."""
  # Unlike queues' element shapes, shapes of variables need not agree.
  return tf.compat.v1.Variable(
    initial, name=_STATE, use_resource=True, trainable=False, collections=[]
  )


def orders_queue() -> tf.queue.FIFOQueue:
  """Creates the queue of a task's orders, on the current device."""
  return tf.queue.FIFOQueue(16, tf.string, shapes=[[]], shared_name=_ORDERS)
