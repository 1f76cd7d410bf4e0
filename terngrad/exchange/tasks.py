"""Tasks that serve a run, and how its chief talks with them.

Every ps and every worker but the chief, worker 0, is a `tf.distribute.Server`.
What the chief has to know of a task stands in a variable there, and what it
has to do goes through a queue there, both found by their names: TensorFlow
1's own way between sessions. Every call has a time-out. The variable and the
queue belong to the server, so they go with its process.
"""

import json
import os
import queue
import threading
import uuid
from typing import NamedTuple

import tensorflow as tf

_STATE = 'terngrad_state'
_ORDERS = 'terngrad_orders'
# Seconds for a short call to a task that is well; a stopped one takes them all.
CALL_TIMEOUT = 10


class Task(NamedTuple):
  """One process of a cluster.

  Attributes:
    job: 'ps' or 'worker'.
    index: in its job.
    address: 'host:port'.
  """

  job: str
  index: int
  address: str

  def __str__(self):
    """As messages name it."""
    return f'{self.job} {self.index} ({self.address})'

  def device(self, name='CPU:0'):
    """The full name of one of its devices."""
    return f'/job:{self.job}/replica:0/task:{self.index}/device:{name}'


class State(NamedTuple):
  """What a task says of itself.

  Attributes:
    incarnation: of its process: another one after a restart.
    fingerprint: dict of str to str, see `exchange.fingerprint`.
    trouble: why it cannot go on, or ''.
  """

  incarnation: str
  fingerprint: dict
  trouble: str = ''


class LostError(RuntimeError):
  """A task does not answer, or not as a task of this run would."""


def all_tasks(cluster, job):
  """The tasks of a job of a `cluster.Cluster`."""
  addresses = cluster.jobs.get(job, ())
  return [Task(job, i, address) for i, address in enumerate(addresses)]


def servers_of(cluster):
  """All tasks but the chief."""
  return [*all_tasks(cluster, 'ps'), *all_tasks(cluster, 'worker')[1:]]


def answers(task, timeout=CALL_TIMEOUT):
  """True where a task's server answers within `timeout` seconds.

  A process that was stopped accepts connections but does not answer.
  """
  try:
    with tf.Graph().as_default(), _session(task, timeout) as session:
      session.list_devices()
    return True
  except tf.errors.OpError:
    return False


def state_of(task, timeout=CALL_TIMEOUT):
  """The `State` of a task.

  Raises:
    LostError: it does not answer, or is not ready yet.
  """
  try:
    with tf.Graph().as_default(), tf.device(task.device()):
      variable = _state_variable(tf.constant(''))
      with _session(task, timeout) as session:
        text = session.run(variable.read_value())
    state = State(**json.loads(text))
    if all(isinstance(value, str) for value in state.fingerprint.values()):
      return state
  except (tf.errors.OpError, AttributeError, TypeError, ValueError) as error:
    raise LostError(f'{task} does not tell its state: {error}') from error
  raise LostError(f'{task} does not tell its state: {state.fingerprint}')


def order(task, timeout=CALL_TIMEOUT, **what):
  """Tells a task what to do; see `Service.next_order`.

  Args:
    task: `Task`.
    timeout: seconds.
    **what: of JSON's types.

  Raises:
    LostError: it does not answer.
  """
  try:
    with tf.Graph().as_default(), tf.device(task.device()):
      enqueue = _orders_queue().enqueue([json.dumps(what)])
      with _session(task, timeout) as session:
        session.run(enqueue)
  except tf.errors.OpError as error:
    raise LostError(f'{task} takes no orders: {error}') from error


class Service:
  """The server of this process.

  It cannot be stopped: TensorFlow's server has no end but the process's.
  """

  def __init__(self, task, cluster, fingerprint, device_count=None):
    """Starts it.

    Args:
      task: `Task`, this process.
      cluster: `cluster.Cluster`.
      fingerprint: dict of str to str.
      device_count: dict of kind of device to number; {'GPU': 0} for none.

    Raises:
      LostError: the port is taken.
    """
    self.task = task
    self._state = State(uuid.uuid4().hex, fingerprint)
    config = tf.compat.v1.ConfigProto(
      device_count=device_count or {},
      # Only itself: it must answer while others are not there yet.
      device_filters=[f'/job:{task.job}/task:{task.index}'],
      intra_op_parallelism_threads=(
        tf.config.threading.get_intra_op_parallelism_threads()
      ),
    )
    config.gpu_options.allow_growth = True
    try:
      self._server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster.jobs),
        job_name=task.job,
        task_index=task.index,
        config=config,
      )
    except tf.errors.OpError as error:
      raise LostError(
        f'{task}: expected to listen on its port, received: {error.message} '
        'Stop what uses the port, or name another in the list of hosts.'
      ) from error
    self._graph = tf.Graph()
    with self._graph.as_default(), tf.device(task.device()):
      self._text = tf.compat.v1.placeholder(tf.string, [])
      variable = _state_variable(self._text)
      self._assign = variable.initializer
      self._dequeue = _orders_queue().dequeue()
      self._session = tf.compat.v1.Session(self._server.target, config=config)
    self._orders = queue.Queue()
    threading.Thread(target=self._take_orders, daemon=True).start()
    self._publish()

  def fail(self, trouble):
    """Lets the chief know why this task cannot go on."""
    self._state = self._state._replace(trouble=trouble)
    self._publish()

  def next_order(self, timeout):
    """The next order of the chief, a dict; None after `timeout` seconds."""
    try:
      return self._orders.get(timeout=timeout)
    except queue.Empty:
      return None

  def feed(self, tag, batches, stop):
    """Puts batches into this task's queue `tag` until it is to stop.

    Args:
      tag: name of the queue.
      batches: iterator of lists of tensors.
      stop: `threading.Event`; set it and call `close`.
    """
    first = [part.numpy() for part in next(batches)]
    with self._graph.as_default(), tf.device(self.task.device()):
      holders = [
        tf.compat.v1.placeholder(part.dtype, part.shape) for part in first
      ]
      handle = batch_queue(tag, [h.dtype for h in holders])
      enqueue = tf.raw_ops.QueueEnqueueV2(handle=handle, components=holders)
    self._put(enqueue, holders, first)
    for batch in batches:
      if stop.is_set():
        return
      self._put(enqueue, holders, [part.numpy() for part in batch])

  def close(self, tag, dtypes):
    """Closes this task's queue `tag`, so that nobody waits for it."""
    with self._graph.as_default(), tf.device(self.task.device()):
      close = tf.raw_ops.QueueCloseV2(
        handle=batch_queue(tag, dtypes), cancel_pending_enqueues=True
      )
    self._session.run(close)

  def _put(self, enqueue, holders, values):
    self._session.run(enqueue, dict(zip(holders, values, strict=True)))

  def _publish(self):
    text = json.dumps(self._state._asdict())
    self._session.run(self._assign, {self._text: text})

  def _take_orders(self):
    while True:
      try:
        value = json.loads(self._session.run(self._dequeue))
      except ValueError:
        continue
      except tf.errors.OpError:
        return  # the session ended
      if isinstance(value, dict):
        self._orders.put(value)


def batch_queue(tag, dtypes):
  """The handle of a task's queue of batches, on the device that is current.

  A handle and no `tf.queue.FIFOQueue`: that deletes the queue when it goes.
  """
  return tf.raw_ops.FIFOQueueV2(
    component_types=list(dtypes), capacity=2, shared_name=f'batches_{tag}'
  )


def new_tag():
  """A name for queues that nobody else uses."""
  return uuid.uuid4().hex


def connect(cluster):
  """Makes this process the client of all tasks of a cluster.

  It becomes worker 0 itself, at the address that the cluster has for it, so
  that tasks that were started again find it.

  Args:
    cluster: `cluster.Cluster` of the chief; all tasks answer.

  Raises:
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
    raise LostError(f'Expected to join the cluster: {error}') from error


def _session(task, timeout):
  config = tf.compat.v1.ConfigProto(
    device_filters=[f'/job:{task.job}/task:{task.index}'],
    operation_timeout_in_ms=int(timeout * 1000),
  )
  return tf.compat.v1.Session(f'grpc://{task.address}', config=config)


def _state_variable(initial):
  # Unlike the shape of a queue's elements, a variable's need not agree.
  return tf.compat.v1.Variable(
    initial, name=_STATE, use_resource=True, trainable=False, collections=[]
  )


def _orders_queue():
  return tf.queue.FIFOQueue(16, tf.string, shapes=[[]], shared_name=_ORDERS)
