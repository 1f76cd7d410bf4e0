"""Asynchronous runs: updates that do not wait for all worker processes.

A step is one update with the mean of the first K gradients that are not too
late. K = 1 is an asynchronous run. With K < N of N worker processes and no
staleness, a step waits for the K fastest and drops the gradients of the others.

The chief has one thread per worker process, which waits for its push. The
thread of the loop takes the pushes in order of arrival, lets the servers
accumulate or apply them, and lets the workers pull. Only this thread changes
the parameters, so a checkpoint holds exactly one step and staleness is exact.
Arrival order depends on timing, so no two runs are bit-identical.
"""

import concurrent.futures
import contextlib
import dataclasses
import queue
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

import tensorflow as tf

from terngrad.cluster import tasks
from terngrad.cluster import watchdog
from terngrad.config import servers
from terngrad.exchange import server
from terngrad.exchange import towers as towers_lib
from terngrad.parameter_server import async_layout
from terngrad.parameter_server import async_servers
from terngrad.parameter_server import async_shares
from terngrad.parameter_server import async_step
from terngrad.parameter_server import server_feeds
from terngrad.parameter_server import server_hooks
from terngrad.parameter_server import staleness
from terngrad.reduce import gradients
from terngrad.step import replicas
from terngrad.step import step as steps
from terngrad.training import batches as batches_lib
from terngrad.training import execution

# Number of the chief's process; the loop provides its batches.
_CHIEF = 0


@dataclasses.dataclass
class _RemoteWorker:
  """A worker process from the chief's view.

  Attributes:
    process: traced functions of the process.
    num_batches: number of batches that the process has started, with those of
      earlier runs.
    pulled_step: updates in the parameters that the process pulled last.
    seconds: time limit of the next push.
  """

  process: async_step.WorkerProcess
  num_batches: int
  pulled_step: int
  seconds: float


class Asynchronous(execution.ExecutionContext, steps.Step):
  """An asynchronous run: a step uses the gradients of some processes.

  The object is both the context of the run and its step.
  """

  def __init__(
    self,
    cluster: servers.ServerClusterOptions,
    run: servers.ServerRunOptions,
    seed: int,
    data: batches_lib.Data,
    layout: server.Servers,
    feeds: server_feeds.Feeds,
  ) -> None:
    """Prepares a run from the options and the data of the chief's process.

    `batches` starts the workers.
    """
    self._tally = staleness.Tally()
    super().__init__(
      async_layout.AsyncLayout(*layout),
      data,
      server_hooks.ServerHooks(cluster, run, self._tally),
    )
    self._cluster = cluster
    self._seed = seed
    self._layout = layout
    self._feeds = feeds
    self._rule = staleness.Rule(
      0 if cluster.sync else cluster.max_staleness,
      cluster.scale_learning_rate_by_staleness,
    )
    self._trainings: list[tuple[steps.Training, gradients.GradientCodec]] = []
    self._workers: list[_RemoteWorker] = []
    self._num_nodes = layout.num_workers // layout.num_processes
    self._batch: Sequence[batches_lib.Examples] = ()
    self._pool = concurrent.futures.ThreadPoolExecutor(layout.num_processes)
    self._arrivals: queue.SimpleQueue[int] = queue.SimpleQueue()
    self._pushes: dict[int, concurrent.futures.Future[steps.StepResult]] = {}
    self._limits: dict[int, contextlib.ExitStack] = {}

  def placement_scope(self) -> contextlib.AbstractContextManager[None]:
    """Context that assigns each new variable to a server."""
    return async_shares.balance(self._layout.servers)

  def join(self) -> None:
    """Waits a while for pending pushes, whose gradients are not used.

    The run is complete: a worker that does not respond any more ends nothing.
    """
    for limit in self._limits.values():
      # At the same time the thread of the push may close it.
      limit.pop_all().close()
    concurrent.futures.wait(self._pushes.values(), tasks.CALL_TIMEOUT)

  def make_step(
    self, training: steps.Training, codec: gradients.GradientCodec
  ) -> steps.Step:
    """Returns this object, after storing the training and the codec."""
    self._trainings.append((training, codec))
    return self

  def batches(
    self, step: int, shares: Sequence[int] | None = None
  ) -> Iterator[batches_lib.Batch]:
    """Starts all processes after `step` completed steps.

    Each process starts at the batch step * K / N, the mean number of batches
    per process. The exact numbers are not stored.

    Returns:
      The chief's batches, see `_batches`.
    """
    # The first codec is that of the coded steps. The configuration refuses
    # float32 steps and warm-up in asynchronous runs, so no other is used.
    training, codec = self._trainings[0]
    first, *others = training.replicas
    begun = step * self._cluster.aggregate // self._layout.num_processes
    with self.hooks.time_limit('Start of the workers'):
      for other in others:
        replicas.copy(first, other)
      target = async_servers.AsyncServers(
        training.node_pass,
        codec,
        first,
        training.optimizer,
        self._cluster.aggregate,
      )
      self._workers = [
        _RemoteWorker(
          self._make_process(training, target, number, feed),
          begun,
          step,
          # The first push includes compilation.
          2 * self._cluster.step_timeout,
        )
        for number, feed in enumerate([None, *self._feeds(begun)])
      ]
      for number in range(1, len(self._workers)):
        self._start(number)
      return self._batches(super().batches(begun, shares))

  def _batches(
    self, batches: Iterator[batches_lib.Batch]
  ) -> Iterator[batches_lib.Batch]:
    """Yields each of the chief's batches until its process has started it.

    The loop reads the batches, because it reports data that cannot be read.
    """
    for batch in batches:
      self._batch = batch
      while self._batch:
        yield batch

  def _make_process(
    self,
    training: steps.Training,
    target: async_servers.AsyncServers,
    number: int,
    feed: server.Feed | None,
  ) -> async_step.WorkerProcess:
    # Device 0 represents the servers, so those of the workers start at 1.
    indices = slice(1 + number, None, self._layout.num_processes)
    return async_step.WorkerProcess(
      node_pass=training.node_pass,
      towers=towers_lib.Towers(self.exchange.devices[indices], self._num_nodes),
      replicas=training.replicas[indices],
      states=training.states.workers[indices],
      feed=feed,
      seed=async_step.seed_of(self._seed, number),
      servers=target,
    )

  def _start(self, number: int) -> None:
    """Starts the computation and push of a gradient in a waiting thread."""
    worker = self._workers[number]
    batch: Sequence[batches_lib.Examples] = ()
    if number == _CHIEF:
      batch, self._batch = self._batch, ()
    push = worker.process.push
    arguments = [
      tf.constant(worker.pulled_step, tf.int64),
      tf.constant(worker.num_batches, tf.int64),
      *batch,
    ]
    # Traces here, in one thread, because Keras is not thread-safe.
    push.get_concrete_function(*arguments)
    limit = self._limits[number] = contextlib.ExitStack()
    limit.enter_context(
      watchdog.limit(self._cluster.tasks, worker.seconds, f'Worker {number}')
    )

    def wait() -> steps.StepResult:
      with limit:
        pushed = push(*arguments)
        # Waits for the push: TensorFlow may return before it has finished.
        pushed.entropy.numpy()
      return pushed

    worker.seconds = self._cluster.step_timeout
    worker.num_batches += 1
    future = self._pool.submit(wait)
    self._pushes[number] = future
    future.add_done_callback(lambda _: self._arrivals.put(number))

  def take(
    self,
    images: tf.Tensor,
    labels: tf.Tensor,
    step: tf.Tensor,
    learning_rate: tf.Tensor,
    averaging_decay: tf.Tensor,
    stop: tf.Tensor | float = 0.0,
  ) -> steps.StepResult:
    """Takes a step with the next K pushes that are not too late.

    Args:
      images: [nodes, b, ...], the chief's batch; not used here, because
        `_batches` passes it to the chief's process.
      labels: [nodes, b], likewise.
      step: int64 [], completed steps.
      learning_rate: float32 [].
      averaging_decay: float32 [], decay of the parameters' moving averages.
      stop: float32 [], number of the received signal or 0.

    Returns:
      The result over the workers of the processes that pushed.
    """
    del images, labels  # The chief's process takes them from `_batch`.
    num_updates = int(step)
    if _CHIEF not in self._pushes:
      self._start(_CHIEF)
    results = {}
    number, late, results[number] = self._next_push(num_updates)
    while len(results) < self._cluster.aggregate:
      self._workers[number].process.accumulate()
      number, late, results[number] = self._next_push(num_updates)
    # A gradient can be late only if K = 1, so `late` is that of the update.
    scaled_rate = self._rule.learning_rate(learning_rate, late)
    self._workers[number].process.apply(step, scaled_rate, averaging_decay)
    self._pull(results, num_updates + 1)
    for number in results:
      # The next `take` starts the chief's push: the loop may save before it.
      if number != _CHIEF:
        self._start(number)
    return self._result(results, stop)

  def _next_push(self, num_updates: int) -> tuple[int, int, steps.StepResult]:
    """Waits for a push that is not too late; drops those that are.

    Returns:
      (number of the process, staleness, result of the push).
    """
    while True:
      number = self._arrivals.get()
      pushed = self._pushes.pop(number).result()
      late = num_updates - self._workers[number].pulled_step
      if self._rule.applies(late):
        self._tally.apply(late)
        return number, late, pushed
      self._tally.drop()
      self._pull([number], num_updates)
      self._start(number)

  def _pull(self, numbers: Iterable[int], step: int) -> None:
    """Lets processes pull concurrently, after `step` updates."""
    pulling = [self._workers[number] for number in numbers]
    # `list` waits for all pulls.
    list(self._pool.map(lambda worker: worker.process.pull(), pulling))
    for worker in pulling:
      worker.pulled_step = step

  def _result(
    self, results: dict[int, steps.StepResult], stop: tf.Tensor | float
  ) -> steps.StepResult:
    parts = list(results.values())
    nodes = range(self._num_nodes)
    return parts[-1]._replace(
      entropy=tf.concat([part.entropy for part in parts], axis=0),
      accuracy=tf.concat([part.accuracy for part in parts], axis=0),
      probes=tf.concat([part.probes for part in parts], axis=0),
      sent=tf.concat([part.sent for part in parts], axis=0),
      stop=tf.convert_to_tensor(stop),
      worker_labels=tuple(
        f'node {node} of worker {number}'
        if len(nodes) > 1
        else f'worker {number}'
        for number in results
        for node in nodes
      ),
    )
