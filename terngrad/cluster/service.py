"""The server process of a ps, or of a worker that is not the chief.

`cluster.tasks` is the chief's side of the same variable and queues.
"""

import itertools
import json
import queue
import threading
import uuid
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad.cluster import spec as clusters
from terngrad.cluster import tasks


class TaskServer:
  """The TensorFlow server of this process.

  It cannot be stopped: TensorFlow's server runs until the process ends.
  """

  def __init__(
    self,
    task: tasks.Task,
    cluster: clusters.Cluster,
    fingerprint: Mapping[str, str],
    device_count: Mapping[str, int] | None = None,
  ) -> None:
    """Starts the server.

    Args:
      task: this process.
      cluster: the cluster of the run.
      fingerprint: fingerprint of this process.
      device_count: number of devices by kind; {'GPU': 0} hides GPUs.

    Raises:
      tasks.LostError: the port is in use.
    """
    self.task = task
    self._state = tasks.TaskState(uuid.uuid4().hex, fingerprint)
    config = tf.compat.v1.ConfigProto(
      device_count=device_count or {},
      # Only this task: it must answer before the others have started.
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
      raise tasks.LostError(
        f'{task}: expected to listen on its port, received: {error.message}. '
        'Stop the process that uses the port, or choose another for this task.'
      ) from error
    self._graph = tf.Graph()
    with self._graph.as_default(), tf.device(task.device()):
      self._text = tf.compat.v1.placeholder(tf.string, [])
      variable = tasks.state_variable(self._text)
      self._assign = variable.initializer
      self._dequeue = tasks.orders_queue().dequeue()
      self._session = tf.compat.v1.Session(self._server.target, config=config)
    self._orders: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=self._receive_orders, daemon=True).start()
    self._publish()

  def fail(self, trouble: str) -> None:
    """Reports to the chief why this task cannot continue."""
    self._state = self._state._replace(trouble=trouble)
    self._publish()

  def next_order(self, timeout: float) -> dict[str, Any] | None:
    """Returns the chief's next order; None after `timeout` seconds."""
    try:
      return self._orders.get(timeout=timeout)
    except queue.Empty:
      return None

  def wait_for_chief_end(self, chief: tasks.Task) -> None:
    """Waits for the chief's end, which may still release resources here."""
    for _ in range(tasks.CALL_TIMEOUT):
      if not tasks.answers(chief, timeout=1):
        return
      self.next_order(timeout=1)

  def feed(
    self,
    tag: str,
    batches: Iterator[Sequence[tf.Tensor]],
    stop: threading.Event,
  ) -> None:
    """Puts batches into this task's queue `tag` until it is stopped.

    Args:
      tag: name of the queue.
      batches: an infinite iterator.
      stop: to stop, set it and call `close`.
    """
    first = next(batches)
    with self._graph.as_default(), tf.device(self.task.device()):
      placeholders = [
        tf.compat.v1.placeholder(part.dtype, part.shape) for part in first
      ]
      handle = tasks.batch_queue(tag, [h.dtype for h in placeholders])
      enqueue = tf.raw_ops.QueueEnqueueV2(
        handle=handle, components=placeholders
      )
    for batch in itertools.chain([first], batches):
      if stop.is_set():
        return
      values = [part.numpy() for part in batch]
      self._session.run(enqueue, dict(zip(placeholders, values, strict=True)))

  def progress(self, tag: str) -> Iterator[tuple[int, float]]:
    """Yields (step, loss) of every step in this task's queue `tag`.

    Ends when the queue is closed.
    """
    with self._graph.as_default(), tf.device(self.task.device()):
      dequeue = tf.raw_ops.QueueDequeueV2(
        handle=tasks.progress_queue(tag), component_types=tasks.PROGRESS
      )
    while True:
      try:
        step, loss = self._session.run(list(dequeue))
      except tf.errors.OpError:
        return
      yield int(step), float(loss)

  def close(self, tag: str, dtypes: Iterable[tf.DType]) -> None:
    """Closes this task's queues `tag`, so that nothing waits for them."""
    with self._graph.as_default(), tf.device(self.task.device()):
      handles = tasks.batch_queue(tag, dtypes), tasks.progress_queue(tag)
      close = [
        tf.raw_ops.QueueCloseV2(handle=h, cancel_pending_enqueues=True)
        for h in handles
      ]
    self._session.run(close)

  def _publish(self) -> None:
    text = json.dumps(self._state._asdict())
    self._session.run(self._assign, {self._text: text})

  def _receive_orders(self) -> None:
    while True:
      try:
        value = json.loads(self._session.run(self._dequeue))
      except ValueError:
        continue
      except tf.errors.OpError:
        return  # the session ended
      if isinstance(value, dict):
        self._orders.put(value)
