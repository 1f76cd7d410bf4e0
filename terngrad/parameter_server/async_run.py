"""Runs in which no update waits for all worker processes.

A step is an update by the mean of the first K gradients that are not too late.
K = 1 is an asynchronous run; K < N without staleness keeps the N workers in
step but for those that are left behind.

One thread of the chief for each worker process waits for its push; the loop's
own thread takes the pushes in the order in which they come and lets the servers
hold or apply them, and the workers pull. Only that thread touches the
parameters, so a checkpoint is of one step, and staleness is counted exactly.
The order is that of time: no two runs end at the same bits.
"""

import concurrent.futures
import contextlib
import queue
from collections.abc import Iterator
from collections.abc import Sequence

import tensorflow as tf

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

# The process of the chief, whose batches the loop gives.
_CHIEF = 0


class Asynchronous(execution.ExecutionContext, steps.Step):
  """A run in which a step takes the gradients of some processes.

  It is both the context of the run and its step.
  """

  def __init__(
    self,
    cluster: servers.ServerCluster,
    run: servers.ServerRun,
    seed: int,
    data: batches_lib.Data,
    layout: server.Servers,
    feeds: server_feeds.Feeds,
  ) -> None:
    """Starts nothing.

    Args:
      cluster: of the chief.
      run: says when to save.
      seed: of the run.
      data: of the chief's process.
      layout: who lives where.
      feeds: of all processes but the chief.
    """
    self._tally = staleness.Tally()
    super().__init__(
      async_layout.AsyncLayout(layout),
      data,
      range(1),
      server_hooks.AsyncHooks(cluster, run, layout.num_processes, self._tally),
    )
    self._cluster = cluster
    self._seed = seed
    self._layout = layout
    self._feeds = feeds
    self._rule = staleness.Rule(
      0 if cluster.sync else cluster.max_staleness,
      cluster.scale_learning_rate_by_staleness,
    )
    self._node_pass = None
    self._copies = ()
    self._states = None
    self._servers = None
    self._processes = []
    self._pulled = []
    self._first = 0
    self._own = []
    self._num_nodes = layout.num_workers // layout.num_processes
    self._batch = ()
    self._pool = concurrent.futures.ThreadPoolExecutor(layout.num_processes)
    self._arrivals = queue.SimpleQueue()
    self._in_flight = {}

  def placement_scope(self) -> contextlib.AbstractContextManager:
    """Deals the variables to the servers."""
    return async_shares.dealt(self._layout.servers)

  def join(self) -> None:
    """Waits for pushes that are under way, which count no more."""
    concurrent.futures.wait(self._in_flight.values())

  def make_step(
    self, training: steps.Training, codec: gradients.GradientCodec
  ) -> steps.Step:
    """See `execution.ExecutionContext.make_step`."""
    # The first codec is that of coded steps; float32 steps between them are
    # refused, so the second is never used.
    if not self._servers:
      self._node_pass, self._copies = training.node_pass, training.replicas
      self._states = training.states
      self._servers = async_servers.Servers(
        training.node_pass,
        codec,
        training.replicas[0],
        training.optimizer,
        self._cluster.aggregate,
      )
    return self

  def batches(
    self, step: int, shares: Sequence[int] | None = None
  ) -> Iterator[batches_lib.Batch]:
    """Lets all processes begin at a step; the chief's batches, see `_batches`.

    Each has had its share of the updates, about: nobody keeps count.
    """
    del shares  # all are equal
    count = self._layout.num_processes
    self._first = first = step * self._cluster.aggregate // count
    with self.hooks.time_limit('Begin'):
      for copy in self._copies[1:]:
        replicas.copy(self._copies[0], copy)
      self._pulled = [step] * count
      self._own = [first] * count
      self._processes = [
        self._make_process(number, feed)
        for number, feed in enumerate([None, *self._feeds.open(first)])
      ]
      for number in range(1, count):
        self._start(number)
      return self._batches(self.data.batches(first))

  def _batches(self, batches):
    """The chief's next batch, again and again until its process began it.

    The loop asks for it, and explains data that cannot be read.
    """
    while True:
      if not self._batch:
        self._batch = next(batches)
      yield self._batch

  def _make_process(self, number, feed):
    count = self._layout.num_processes
    return async_step.Process(
      async_step.GradientSource(
        node_pass=self._node_pass,
        towers=towers_lib.Towers(
          self._layout.towers.devices[number::count], self._num_nodes
        ),
        # The first device is the servers'.
        replicas=self._copies[1 + number :: count],
        states=self._states.workers[1 + number :: count],
        feed=feed,
        seed=async_step.seed_of(self._seed, number),
      ),
      self._servers,
    )

  def _start(self, number):
    """Lets a process compute and push a gradient, in a thread that waits."""
    batch = ()
    if number == _CHIEF:
      batch, self._batch = self._batch, ()
    push = self._processes[number].push
    told = self._pulled[number], self._own[number]
    arguments = [*(tf.constant(value, tf.int64) for value in told), *batch]
    # Traced here: Keras need not be used by several threads at once.
    push.get_concrete_function(*arguments)
    begins = self._own[number] == self._first
    seconds = self._cluster.step_timeout * (2 if begins else 1)

    def wait():
      with watchdog.limit(self._cluster.tasks, seconds, f'Worker {number}'):
        pushed = push(*arguments)
        # It may still be under way until a number of it is looked at.
        pushed.entropy.numpy()
      return pushed

    self._own[number] += 1
    future = self._pool.submit(wait)
    self._in_flight[number] = future
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
    """Takes a step with the next pushes that are not too late.

    Args:
      images: [nodes, b, ...], the chief's, see `_batches`.
      labels: likewise, [nodes, b].
      step: int64 [].
      learning_rate: float32 [].
      averaging_decay: float32 [].
      stop: float32 [].

    Returns:
      A `step.StepResult` of the processes that pushed.
    """
    del images, labels  # its process takes them from `_batch`
    taken = int(step)
    if _CHIEF not in self._in_flight:
      self._start(_CHIEF)
    came = {}
    number, late, came[number] = self._next_push(taken)
    while len(came) < self._cluster.aggregate:
      self._processes[number].hold()
      number, late, came[number] = self._next_push(taken)
    # Only where one gradient makes an update can it be late.
    rate = self._rule.learning_rate(learning_rate, late)
    self._processes[number].apply(step, rate, averaging_decay)
    self._pull(came, taken + 1)
    for number in came:
      # The chief waits for the loop, which may have to save.
      if number != _CHIEF:
        self._start(number)
    return self._result(came, stop)

  def _next_push(self, taken):
    """(process, staleness, `async_step.Pushed`); drops what comes too late."""
    while True:
      number = self._arrivals.get()
      pushed = self._in_flight.pop(number).result()
      late = taken - self._pulled[number]
      if self._rule.applies(late):
        self._tally.apply(late)
        return number, late, pushed
      self._tally.drop()
      self._pull([number], taken)
      self._start(number)

  def _pull(self, numbers, step):
    """Lets processes pull at once, after `step` updates."""
    for _ in self._pool.map(lambda n: self._processes[n].pull(), numbers):
      pass
    for number in numbers:
      self._pulled[number] = step

  def _result(self, came, stop):
    parts = async_step.Pushed(*zip(*came.values(), strict=True))
    nodes = range(self._num_nodes)
    return steps.StepResult(
      entropy=tf.concat(parts.entropy, axis=0),
      accuracy=tf.concat(parts.accuracy, axis=0),
      probes=tf.concat(parts.probes, axis=0),
      shared=parts.shared[-1],
      # Codes stay on the servers, so there are no histograms of them.
      words=[[tf.zeros([1, 0], tf.int32)]],
      sent=tf.concat(parts.sent, axis=0),
      stop=tf.convert_to_tensor(stop),
      worker_labels=tuple(
        f'node {node} of worker {number}'
        if len(nodes) > 1
        else f'worker {number}'
        for number in came
        for node in nodes
      ),
    )
