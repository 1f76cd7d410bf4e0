"""Whose gradient counts, with processes that push in the order of a script."""

import contextlib
import itertools
import threading
import types

import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.config import options as options_lib
from terngrad.config import servers
from terngrad.exchange import server as exchange
from terngrad.exchange import towers
from terngrad.parameter_server import async_run
from terngrad.step import step as steps
from terngrad.training import batches
from terngrad.training import loop
from terngrad.training import metrics


class Script:
  """The order in which processes push; `turn` is whose it is."""

  def __init__(self, order):
    self._order = iter(order)
    self._changed = threading.Condition()
    self.current = next(self._order)
    self.events, self.pulls, self.batches = [], [], []

  def wait_for(self, number):
    with self._changed:
      # At the end of a script nobody's push comes any more.
      self._changed.wait_for(lambda: self.current in (number, None), timeout=60)

  def went(self, *event):
    """The loop answered the last push, so that the next may come."""
    with self._changed:
      self.events.append(event)
      self.current = next(self._order, None)
      self._changed.notify_all()


class Process:
  """Stands for `async_step.WorkerProcess`."""

  def __init__(self, script, number, value=1.0):
    self._script, self._number, self._value = script, number, value
    self._waits = False
    self.push = _Traced(self._push)

  def _push(self, pulled, num_batches, *batch):
    if batch:
      self._script.batches.append(int(batch[0]))
    self._script.wait_for(self._number)
    self._waits = True
    return steps.StepResult(
      entropy=tf.fill([2], float(self._number)),
      accuracy=tf.fill([2], 0.5),
      probes=tf.fill([2, 1], self._value),
      shared=tf.fill([1], self._value),
      words=[],
      sent=tf.zeros([2], tf.int32),
      stop=tf.zeros([]),
    )

  def accumulate(self):
    self._answer('accumulate')

  def apply(self, step, rate, decay):
    self._answer('apply', step, rate)

  def pull(self):
    self._script.pulls.append(self._number)
    if self._waits:
      self._answer('drop')

  def _answer(self, what, *more):
    self._waits = False
    self._script.went(what, self._number, *more)


class _Traced:
  """Stands for a `tf.function`."""

  def __init__(self, function):
    self._function = function

  def get_concrete_function(self, *arguments):
    return self._function

  def __call__(self, *arguments):
    return self._function(*arguments)


@pytest.fixture
def begin(monkeypatch):
  """Makes runs of three processes of two nodes, and steps of them."""
  runs = []

  def make(order, first=0, **options):
    script = Script(order)
    config = options_lib.build(
      servers.ServerConfig,
      job_name='worker',
      net='lenet',
      num_nodes=2,
      ps_hosts='localhost:1',
      worker_hosts='localhost:2,localhost:3,localhost:4',
      **options,
    )
    config.validate()
    values = iter((1.0, float('nan'), 1.0))
    made = (Process(script, i, value) for i, value in enumerate(values))
    monkeypatch.setattr(
      async_run.async_servers, 'AsyncServers', lambda *_: 'them'
    )
    monkeypatch.setattr(
      async_run.async_step, 'WorkerProcess', lambda **_: next(made)
    )
    numbers = ((tf.constant(i), 'labels') for i in itertools.count())
    data = batches.Data(
      num_examples=90,
      num_classes=10,
      channels=1,
      batches=lambda step, shares: itertools.islice(numbers, step, None),
    )
    layout = exchange.Servers(towers.Towers(tuple('abc'), 6), ('ps',), 3)
    run = async_run.Asynchronous(
      config.cluster,
      config.run,
      config.model.seed,
      data,
      layout,
      lambda step: [0, 0],
    )
    runs.append(run)
    training = types.SimpleNamespace(
      node_pass=None,
      replicas=[None],
      states=types.SimpleNamespace(workers=()),
      optimizer=None,
    )
    taken = run.make_step(training, None)
    stream = run.batches(first)

    def step(number):
      return taken.take(*next(stream), number, 0.6, 0.5, 0.0)

    return script, step, run.hooks.measure

  make.runs = runs
  yield make
  for run in runs:
    run.join()


def test_a_step_applies_the_first_gradients_and_drops_late_ones(begin):
  script, step, measure = begin(
    [2, 0, 1, 2, 1, 0, 0, 2], num_replicas_to_aggregate=2
  )
  results = [step(number) for number in range(3)]
  assert script.events == [
    ('accumulate', 2),
    ('apply', 0, 0, 0.6),
    ('drop', 1),
    ('accumulate', 2),
    ('apply', 1, 1, 0.6),
    # The chief's process as any other: it pulls and begins its next batch.
    ('drop', 0),
    ('accumulate', 0),
    ('apply', 2, 2, 0.6),
  ]
  assert sorted(script.pulls[:2]) == [0, 2]
  assert [list(r.entropy.numpy()) for r in results] == [
    [2, 2, 0, 0],
    [2, 2, 1, 1],
    [0, 0, 2, 2],
  ]
  # Three steps of two gradients each.
  assert measure() == metrics.Arrivals(staleness=[0] * 6, dropped=2)


def test_a_push_that_is_pending_at_the_end_ends_nothing(begin, monkeypatch):
  limits = []

  @contextlib.contextmanager
  def limit(cluster, seconds, what):
    del cluster, seconds
    limits.append(what)
    yield
    limits.remove(what)

  monkeypatch.setattr(async_run.watchdog, 'limit', limit)
  monkeypatch.setattr(async_run.tasks, 'CALL_TIMEOUT', 0)
  nobody = 7
  script, step, _ = begin([0, nobody], sync=False)
  step(0)
  assert {'Worker 1', 'Worker 2'} <= {*limits}
  (run,) = begin.runs
  run.join()
  # The threads of the pushes still wait.
  assert limits == []
  script.went('end')


def test_the_chief_begins_every_batch_once(begin):
  script, step, _ = begin([0, 0, 1, 2, 0, 2], sync=False, first=7)
  for number in range(6):
    step(7 + number)
  # Of 7 updates each of the three processes had 2. The last batch is begun by
  # a thread that may not have come so far.
  assert script.batches[:3] == [2, 3, 4]
  assert script.batches[3:] in ([], [5])


def test_staleness_is_the_updates_of_others_since_the_pull(begin):
  script, step, measure = begin(
    [1, 1, 0, 2, 0, 1],
    sync=False,
    scale_learning_rate_by_staleness=True,
  )
  late = [0, 0, 2, 3, 1, 3]
  for number in range(6):
    step(number)
  assert [event[3] for event in script.events] == pytest.approx(
    [0.6 / (1 + each) for each in late]
  )
  assert measure() == metrics.Arrivals(staleness=late, dropped=0)


def test_a_gradient_that_is_not_finite_names_its_process(begin):
  _, step, _ = begin([2, 1], num_replicas_to_aggregate=2)
  result = step(0)
  run = types.SimpleNamespace(parameters=['fc/kernel'])
  codec = types.SimpleNamespace(num_probes=1, probed_variables=lambda: [0])
  with pytest.raises(errors.TrainingError) as caught:
    loop._check_finite(run, loop._Taken(1, result, codec, 0.1))
  assert (
    'gradient of fc/kernel on node 0 of worker 1, gradient of fc/kernel on '
    'node 1 of worker 1. '
  ) in str(caught.value)
