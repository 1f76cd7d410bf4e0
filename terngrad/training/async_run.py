"""Asynchronous parameter servers: who computes, and whose code is applied.

One thread of the chief for each worker process waits for its push; the loop's
own thread takes the pushes in the order in which they come, lets the ps apply
them and the worker pull. Only that thread touches the parameters, so a
checkpoint is of one step, and staleness is counted exactly. The order is that
of time: no two runs end at the same bits.
"""

import concurrent.futures
import queue

import tensorflow as tf

from terngrad.exchange import towers as towers_lib
from terngrad.exchange import watchdog
from terngrad.training import async_step
from terngrad.training import replicas
from terngrad.training import server_tasks
from terngrad.training import staleness
from terngrad.training import step as steps
from terngrad.training import surroundings

# The process of the chief, whose batches the loop gives.
_CHIEF = 0


class Asynchronous:
  """A run in which every worker process goes at its own pace.

  A step is an update by the gradient of one process.
  """

  def __init__(self, config, data, layout, open_feeds):
    """Starts nothing.

    Args:
      config: `server_config.ServerConfig` of the chief.
      data: `batches.Data` of the chief's process.
      layout: `exchange.server.Layout`.
      open_feeds: takes a step, returns a `server_step.Feed` for each process
        but the chief.
    """
    self._config = config
    self._data = data
    self._layout = layout
    self._open_feeds = open_feeds
    self._rule = staleness.Rule(
      config.max_staleness, config.scale_learning_rate_by_staleness
    )
    self._tally = staleness.Tally()
    self._parts = None
    self._copies = ()
    self._processes = []
    self._pulled = []
    self._first = 0
    self._own = []
    self._pool = concurrent.futures.ThreadPoolExecutor(layout.num_processes)
    self._arrivals = queue.SimpleQueue()
    self._in_flight = {}

  def surround(self, config):
    """The `surroundings.Surroundings` of the run."""
    # Parameters, slots and averages of the run are the ps's, the first place.
    devices = (self._layout.servers[0], *self._layout.towers.devices)
    return surroundings.Surroundings(
      exchange=towers_lib.Towers(devices, len(devices)),
      data=self._data._replace(batches=self._begin),
      make_step=self._make_step,
      own=range(1),
      check_same=lambda **built: None,
      habits=surroundings.Habits(
        within=self._within,
        log_every=server_tasks.LOG_EVERY,
        line=self._line,
        save_secs=config.save_interval_secs,
        observe_secs=config.save_summaries_secs,
        measure=self._tally.take,
      ),
    )

  def _within(self, what):
    """A limit of twice the time of a step; see `watchdog.limit`.

    A step of the loop waits for a push, which has a limit of its own, and then
    for the ps; the first ones of all wait for compilers.
    """
    seconds = 2 * self._config.step_timeout
    return watchdog.limit(self._config.tasks, seconds, what)

  def finish(self):
    """Waits for pushes that are under way, which count no more."""
    concurrent.futures.wait(self._in_flight.values())

  def _make_step(self, node_pass, codec, copies, optimizer):
    # The first codec is that of coded steps; float32 steps between them are
    # refused, so the second is never used.
    if not self._parts:
      self._copies = copies
      self._parts = async_step.Parts(
        node_pass, codec, copies[0], optimizer, self._config.seed
      )
    return self._take

  def _begin(self, step):
    """Lets all processes begin at a step; the chief's batches, see `_batches`.

    Each has had its share of the updates, about: nobody keeps count.
    """
    count = self._layout.num_processes
    self._first = first = step // count
    with self._within('Begin'):
      for copy in self._copies[1:]:
        replicas.copy(self._copies[0], copy)
      self._pulled = [step] * count
      self._own = [first] * count
      self._processes = [
        self._make_process(number, feed)
        for number, feed in enumerate([None, *self._open_feeds(first)])
      ]
      for number in range(1, count):
        self._start(number)
    return self._batches(self._data.batches(first))

  def _batches(self, batches):
    """What the loop passes on: a batch where the chief's process waits."""
    while True:
      yield (None, None) if _CHIEF in self._in_flight else next(batches)

  def _make_process(self, number, feed):
    count = self._layout.num_processes
    towers = towers_lib.Towers(
      self._layout.towers.devices[number::count], self._config.num_workers
    )
    # The first place is the ps.
    copies = self._copies[1 + number :: count]
    return async_step.make_process(self._parts, number, towers, copies, feed)

  def _start(self, number, *batch):
    """Lets a process compute and push a gradient, in a thread that waits."""
    push = self._processes[number].push
    told = self._pulled[number], self._own[number]
    arguments = [*(tf.constant(value, tf.int64) for value in told), *batch]
    # Traced here: Keras need not be used by several threads at once.
    push.get_concrete_function(*arguments)
    begins = self._own[number] == self._first
    seconds = self._config.step_timeout * (2 if begins else 1)

    def wait():
      with watchdog.limit(self._config.tasks, seconds, f'Worker {number}'):
        pushed = push(*arguments)
        # It may still be under way until a number of it is looked at.
        pushed.entropy.numpy()
      return pushed

    self._own[number] += 1
    future = self._pool.submit(wait)
    self._in_flight[number] = future
    future.add_done_callback(lambda _: self._arrivals.put(number))

  def _take(self, images, labels, step, rate, decay, stop):
    """Takes a step with the next push that is not too late.

    Args:
      images: [nodes, b, ...], or None where the chief's process is at work.
      labels: likewise, [nodes, b].
      step: int64 [].
      rate: float32 [], learning rate.
      decay: float32 [], of the averages.
      stop: float32 [].

    Returns:
      A `step.StepResult` of the process that pushed.
    """
    if images is not None:
      self._start(_CHIEF, images, labels)
    taken = int(step)
    while True:
      number = self._arrivals.get()
      pushed = self._in_flight.pop(number).result()
      late = taken - self._pulled[number]
      if self._rule.applies(late):
        break
      self._tally.drop()
      self._processes[number].pull()
      self._go_on(number, taken)
    self._tally.apply(late)
    rate = self._rule.learning_rate(rate, late)
    self._processes[number].apply(step, rate, decay)
    self._go_on(number, taken + 1)
    return steps.StepResult(
      **pushed._asdict(),
      # Codes stay on the ps, so there are no histograms of them.
      words=[tf.zeros([1, 0], tf.int32)],
      stop=tf.convert_to_tensor(stop),
    )

  def _go_on(self, number, step):
    """A process pulled after `step` updates; the chief waits for a batch."""
    self._pulled[number] = step
    if number != _CHIEF:
      self._start(number)

  def _line(self, step, values):
    """The chief's lines: the mean rates of a worker, the loss of the step."""
    count = self._layout.num_processes
    return (
      f'global_step/sec: {1 / values["sec_per_batch"]:.2f}\n'
      + server_tasks.worker_line(
        _CHIEF,
        f'step {step}, loss = {values["total_loss"]:.2f}',
        values['examples_per_sec'] / count,
        values['sec_per_batch'] * count,
        f'; {values["bits_per_element"]:.2f} bits/element; staleness '
        f'{values["staleness"]:.2f}, at most {values["largest_staleness"]}; '
        f'{values["dropped_gradients"]} dropped',
      )
    )
