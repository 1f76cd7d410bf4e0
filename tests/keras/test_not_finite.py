"""A step of Keras whose gradient is not finite changes nothing."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import terngrad.keras
from tests import not_finite
from tests.exchange import processes
from tests.keras import small

pytestmark = small.ARRAYS_OF_KERAS
SOME = not_finite.SOME
ONE_NAN = (np.nan, False, False)
SKIPPED = 'The step was skipped'


def rule(**options):
  """An optimizer with slots, averages and a decay that comes before sums."""
  return keras.optimizers.SGD(
    0.1, momentum=0.9, weight_decay=0.1, use_ema=True, **options
  )


def wrapped(codes, **options):
  inner = options.pop('inner', None) or rule()
  return terngrad.keras.CompressedOptimizer(
    inner, not_finite.rules(codes), **options
  )


class Loop:
  """A loop of one's own; a replica is a worker."""

  def __init__(self, codes, optimizer=None, replicas=not_finite.WORKERS):
    strategy = small.strategy(replicas)
    with strategy.scope():
      made = optimizer or wrapped(codes)
      self.variables = [
        keras.Variable(
          np.ones(not_finite.SHAPE, np.float32), name=not_finite.name(i)
        )
        for i in range(len(codes))
      ]
      made.build(self.variables)
    self.optimizer, self.compressed = made, made
    if hasattr(made, 'dynamic_scale'):
      self.compressed = made.inner_optimizer

    @tf.function
    def step(values):
      def replica():
        context = tf.distribute.get_replica_context()
        own = tf.unstack(values[context.replica_id_in_sync_group])
        made.apply(own, self.variables)

      strategy.run(replica)

    self.step = step

  def steps(self):
    """Steps taken, of those that accumulate each."""
    return self.compressed._iterations.numpy()

  def arrays(self):
    """All that a step changes, dict of name to array."""
    inner = self.compressed.inner_optimizer
    found = {
      f'state {n}': a
      for n, a in self.compressed.compressor.get_states().items()
    }
    for variable in (*self.variables, *inner.variables):
      values = getattr(variable.value, 'values', [variable.value])
      for i, value in enumerate(values):
        found[f'{variable.path} {i}'] = value.numpy()
    return found


def skips(caplog):
  return [r.message for r in caplog.records if SKIPPED in r.message]


@pytest.mark.parametrize('codes', not_finite.GROUPS, ids=','.join)
@pytest.mark.gate_every(len(not_finite.GROUPS))
def test_a_skipped_step_changes_nothing_with_any_codec(codes, caplog):
  loop, values = Loop(codes), not_finite.gradients(codes)
  loop.step(values)
  before = loop.arrays()
  for case in not_finite.CASES:
    loop.step(values + not_finite.poison(codes, case))
    not_finite.assert_unchanged(loop.arrays(), before)
  assert loop.steps() == 1
  assert len(skips(caplog)) == 1
  loop.step(values)
  assert loop.steps() == 2
  after = loop.arrays()
  assert all(np.isfinite(array).all() for array in after.values())
  moved = f'{loop.variables[0].path} 0'
  assert np.any(after[moved] != before[moved])


@pytest.mark.usefixtures('eager_functions')
def test_the_log_names_the_variable_and_the_step_once(caplog):
  loop, values = Loop(SOME, replicas=1), not_finite.gradients(SOME)[:1]
  loop.step(values)
  values[0, 1, 2, 3] = np.nan
  for _ in range(2):
    loop.step(values)
  (message,) = skips(caplog)
  assert message.startswith('Step 2: ')
  assert f'for {not_finite.name(1)}.' in message
  assert not_finite.name(0) not in message


def test_a_constraint_is_not_applied_in_a_skipped_step():
  made = wrapped(('qsgd',))
  variable = keras.Variable(
    np.ones(not_finite.SHAPE, np.float32), name=not_finite.name(0)
  )
  variable.constraint = lambda value: value * 0.5
  gradient = tf.fill(not_finite.SHAPE, np.nan)
  made.apply([gradient], [variable])
  np.testing.assert_array_equal(variable, np.ones(not_finite.SHAPE))


def test_raise_names_the_variable_and_changes_nothing():
  optimizer = wrapped(SOME, on_not_finite='raise')
  loop, values = Loop(SOME, optimizer, 1), not_finite.gradients(SOME)[:1]
  loop.step(values)
  before = loop.arrays()
  values[0, 1, 2, 3] = np.inf
  for _ in range(2):
    with pytest.raises(
      tf.errors.InvalidArgumentError,
      match=f'Step 2: expected finite gradients.*for {not_finite.name(1)}',
    ):
      loop.step(values)
    not_finite.assert_unchanged(loop.arrays(), before)


@pytest.mark.usefixtures('eager_functions')
def test_pass_updates_by_nan_and_does_not_change_the_states(caplog):
  optimizer = wrapped(SOME, on_not_finite='pass')
  loop, values = Loop(SOME, optimizer, 1), not_finite.gradients(SOME)[:1]
  loop.step(values)
  states = optimizer.compressor.get_states()
  values[0, 1, 2, 3] = -np.inf
  loop.step(values)
  not_finite.assert_unchanged(optimizer.compressor.get_states(), states)
  nan = [np.isnan(variable.numpy()).all() for variable in loop.variables]
  assert nan == [False, True]
  assert int(optimizer.iterations) == 2
  assert 'Their update is NaN' in caplog.text


def test_a_step_of_xla_that_should_raise_is_refused():
  optimizer = wrapped(('sign',), on_not_finite='raise')
  variable = keras.Variable(
    np.ones(not_finite.SHAPE, np.float32), name=not_finite.name(0)
  )
  optimizer.build([variable])
  step = tf.function(
    lambda g: optimizer.apply([g], [variable]),
    jit_compile=True,
    autograph=False,
  )
  with pytest.raises(ValueError, match='Compile the model with jit_compile='):
    step(tf.ones(not_finite.SHAPE))


@pytest.mark.slow
def test_a_step_of_xla_is_skipped():
  optimizer = wrapped(('error_feedback+sign',))
  loop, values = Loop(('sign',), optimizer, 1), not_finite.gradients(('sign',))
  step = tf.function(
    lambda g: optimizer.apply([g], loop.variables),
    jit_compile=True,
    autograph=False,
  )
  step(tf.constant(values[0, 0]))
  before = loop.arrays()
  values[0, 0, 2, 3] = np.nan
  step(tf.constant(values[0, 0]))
  not_finite.assert_unchanged(loop.arrays(), before)


def test_an_unknown_action_is_refused():
  with pytest.raises(ValueError, match="on_not_finite: .*received 'skp'. Use"):
    wrapped(SOME, on_not_finite='skp')


@pytest.mark.parametrize('action', ['skip', 'raise', 'pass'])
def test_the_action_is_saved_and_defaults_to_skip_in_older_files(action):
  config = wrapped(SOME, on_not_finite=action).get_config()
  made = terngrad.keras.CompressedOptimizer.from_config(dict(config))
  assert made.on_not_finite == action
  # As version 0.2 wrote it.
  del config['on_not_finite']
  made = terngrad.keras.CompressedOptimizer.from_config(config)
  assert made.on_not_finite == 'skip'


class TestAccumulation:
  def loop(self, codes=SOME):
    optimizer = wrapped(codes, inner=rule(gradient_accumulation_steps=2))
    return Loop(codes, optimizer, 1)

  def test_a_step_that_is_skipped_changes_nothing(self):
    loop, values = self.loop(), not_finite.gradients(SOME)[:1]
    for _ in range(4):
      loop.step(values)
      before = loop.arrays()
      for value in (np.nan, np.inf):
        loop.step(np.where(values > 1, value, values))
        not_finite.assert_unchanged(loop.arrays(), before)
    assert loop.steps() == 4

  @pytest.mark.usefixtures('eager_functions')
  def test_other_steps_are_as_without_the_skipped_one(self):
    loop, plain = self.loop(), self.loop()
    values = not_finite.gradients(SOME)[:1]
    for _ in range(4):
      loop.step(np.full_like(values, np.nan))
      for each in (loop, plain):
        each.step(values)
    ours, others = loop.arrays(), plain.arrays()
    for mine, theirs in zip(ours.values(), others.values(), strict=True):
      np.testing.assert_array_equal(mine, theirs)


class TestLossScale:
  def test_nan_on_one_replica_skips_the_step_on_all(self):
    """`LossScaleOptimizer` looks at the first replica's gradients."""
    with small.strategy(2).scope():
      scaled = keras.optimizers.LossScaleOptimizer(
        wrapped(SOME), initial_scale=2.0
      )
    loop, values = Loop(SOME, scaled), not_finite.gradients(SOME)
    loop.step(values)
    before = loop.arrays()
    for case in not_finite.CASES:
      loop.step(values + not_finite.poison(SOME, case))
      not_finite.assert_unchanged(loop.arrays(), before)
    assert loop.steps() == 1


def test_a_row_that_is_not_finite_skips_the_step():
  table = keras.Variable(np.ones((10, 1), np.float32), name='table')
  dense = keras.Variable(np.ones(not_finite.SHAPE, np.float32), name='dense')
  optimizer = terngrad.keras.CompressedOptimizer(
    rule(), 'error_feedback+topk:ratio=0.1'
  )
  gradient = tf.constant(not_finite.gradients(('topk',))[0, 0])

  def step(value):
    rows = tf.IndexedSlices(
      tf.constant([[1.0], [value]]), tf.constant([0, 3]), tf.constant([10, 1])
    )
    optimizer.apply([rows, gradient], [table, dense])

  def arrays():
    found = (table, dense, *optimizer.variables)
    return {
      **{str(i): v.numpy() for i, v in enumerate(found)},
      **optimizer.compressor.get_states(),
    }

  step(1.0)
  before = arrays()
  step(float('inf'))
  not_finite.assert_unchanged(arrays(), before)


def virtual(codes, **options):
  keras.utils.set_random_seed(1)
  model = not_finite.model(codes)
  model.compile(
    rule(),
    'sparse_categorical_crossentropy',
    run_eagerly=options.pop('run_eagerly', False),
  )
  return terngrad.keras.virtual_workers(
    model, not_finite.rules(codes), not_finite.WORKERS, **options
  )


def batch(case=None):
  inputs, labels = not_finite.examples(SOME, case)
  return inputs.reshape(4, -1), labels.reshape(4)


def of_model(model):
  found = {
    v.path: v.numpy() for v in (*model.weights, *model.optimizer.variables)
  }
  return found | model.optimizer.compressor.get_states()


class TestVirtualWorkers:
  def test_a_step_that_is_skipped_changes_nothing(self, caplog):
    model = virtual(SOME)
    model.train_on_batch(*batch())
    before = of_model(model)
    for case in not_finite.CASES:
      model.train_on_batch(*batch(case))
      not_finite.assert_unchanged(of_model(model), before)
    assert int(model.optimizer.iterations) == 1
    (message,) = skips(caplog)
    assert f'logits/{not_finite.name(0)}' in message

  def test_raise_and_pass_work_too(self):
    model = virtual(('sign',), on_not_finite='raise', run_eagerly=True)
    inputs, labels = not_finite.examples(('sign',), ONE_NAN)
    bad = inputs.reshape(4, -1), labels.reshape(4)
    model.train_on_batch(inputs[:1].reshape(2, -1), labels[:1].reshape(2))
    before = of_model(model)
    with pytest.raises(
      tf.errors.InvalidArgumentError, match='Step 2: expected'
    ):
      model.train_on_batch(*bad)
    not_finite.assert_unchanged(of_model(model), before)
    assert model.optimizer.get_config()['on_not_finite'] == 'raise'
    model = virtual(('sign',), on_not_finite='pass', run_eagerly=True)
    model.train_on_batch(*bad)
    assert all(np.isnan(v).all() for v in model.get_weights())


def test_fit_continues_and_its_figures_stay_finite():
  with small.strategy(2).scope():
    keras.utils.set_random_seed(1)
    model = not_finite.model(SOME)
    model.compile(wrapped(SOME), 'mse')
  clean, bad = (
    not_finite.examples(SOME, case)[0].reshape(4, -1)
    for case in (None, ONE_NAN)
  )
  inputs = np.concatenate([clean, bad, clean])
  history = model.fit(
    inputs,
    np.zeros([12, 8], np.float32),
    batch_size=4,
    shuffle=False,
    verbose=0,
    callbacks=[terngrad.keras.CompressionMetrics()],
  ).history
  assert model.optimizer.iterations.numpy() == 2
  for name, values in history.items():
    assert np.isfinite(values).all(), name
  assert all(np.isfinite(v).all() for v in model.get_weights())


@pytest.mark.cluster
@pytest.mark.slow
def test_nan_in_one_process_skips_the_step_in_all():
  hosts = processes.addresses(2)
  with processes.Processes() as started:
    for rank in range(2):
      task = {'type': 'worker', 'index': rank}
      started.start(
        processes.ROOT / 'tests/keras/not_finite_process.py',
        TF_CONFIG=json.dumps({'cluster': {'worker': hosts}, 'task': task}),
      )
    for ended in started.wait():
      assert ended.code == 0, ended.log
      assert ended.log.count(SKIPPED) == 1
