"""A gradient that is not finite is seen, whatever codes make of it."""

import numpy as np
import pytest
import tensorflow as tf

import terngrad
from terngrad import errors
from tests import not_finite
from tests.keras import small

STRATEGY = small.strategy(not_finite.WORKERS)
SOME = not_finite.SOME
ONE_NAN = (np.nan, False, False)


def compressing(codes):
  """(step, compressor): `compress` of each replica's gradients, traced."""
  with STRATEGY.scope():
    compressor = terngrad.Compressor(not_finite.rules(codes))
  names = [not_finite.name(i) for i in range(len(codes))]

  @tf.function
  def traced(values, number):
    def replica():
      context = tf.distribute.get_replica_context()
      own = tf.unstack(values[context.replica_id_in_sync_group])
      return tuple(
        terngrad.compress(own, compressor, step=number, mean=True, names=names)
      )

    return STRATEGY.run(replica)

  def step(values, number):
    means = traced(tf.constant(values), tf.constant(number, tf.int64))
    return np.array(
      [[own.numpy() for own in of_replicas.values] for of_replicas in means]
    )

  return step, compressor


@pytest.mark.parametrize('codes', not_finite.GROUPS, ids=','.join)
@pytest.mark.gate_every(len(not_finite.GROUPS))
def test_the_mean_of_every_code_is_nan_and_states_stay(codes):
  step, compressor = compressing(codes)
  values = not_finite.gradients(codes)
  assert np.isfinite(step(values, 0)).all()
  before = compressor.get_states()
  for case in not_finite.CASES:
    means = step(values + not_finite.poison(codes, case), 1)
    assert np.isnan(means).all(), (case, codes)
    not_finite.assert_unchanged(compressor.get_states(), before)
  assert np.isfinite(step(values, 1)).all()


def test_the_means_of_other_variables_stay_finite():
  step, compressor = compressing(SOME)
  values = not_finite.gradients(SOME)
  clean = step(values, 0)
  before = compressor.get_states()
  for index in range(len(SOME)):
    poison = not_finite.poison(SOME, ONE_NAN)
    poison[:, [i for i in range(len(SOME)) if i != index]] = 0
    means = step(values + poison, 0)
    finite = np.isfinite(means).all(axis=(1, 2, 3))
    assert list(finite) == [i != index for i in range(len(SOME))]
    not_finite.assert_unchanged(compressor.get_states(), before)
  assert np.isfinite(clean).all()


def test_gradients_that_add_up_to_infinity_are_not_finite():
  step, _ = compressing(('identity',))
  values = np.full([not_finite.WORKERS, 1, *not_finite.SHAPE], 2e37, np.float32)
  assert np.isfinite(step(values * 0.1, 0)).all()
  values *= 10
  assert np.isfinite(values).all()
  assert np.isnan(step(values, 0)).all()


def test_a_row_that_is_not_finite_keeps_the_states_of_the_others():
  compressor = terngrad.Compressor('error_feedback+topk:ratio=0.1')
  dense = tf.constant(not_finite.gradients(('topk',))[0, 0])

  def step(value):
    rows = tf.IndexedSlices(tf.constant([[1.0], [value]]), tf.constant([0, 3]))
    return terngrad.compress([rows, dense], compressor, step=0)

  step(1.0)
  before = compressor.get_states()
  rows, mean = step(float('inf'))
  np.testing.assert_array_equal(rows.values, [[1.0], [np.inf]])
  assert np.isfinite(mean).all()
  not_finite.assert_unchanged(compressor.get_states(), before)
  step(1.0)
  after = compressor.get_states()['residual:1']
  assert np.any(after != before['residual:1'])


def parallel_of(codes, batches):
  """A `ParallelModel` of two devices; `batches` is a list that it reads."""

  def batches_of(index, count):
    del count
    for inputs, labels in batches:
      yield inputs[index], labels[index]

  return terngrad.parallelize(
    batches_of,
    lambda: not_finite.model(codes),
    devices=['/CPU:0', '/CPU:1'],
    codec_rules='; '.join(
      f'*{name} -> {text}' for name, text in not_finite.rules(codes).items()
    ),
  )


def params(parallel):
  return {
    f'{device} {name}': array
    for device in range(not_finite.WORKERS)
    for name, array in parallel.params(device).items()
  }


@pytest.mark.parametrize('codes', not_finite.GROUPS, ids=','.join)
@pytest.mark.gate_every(len(not_finite.GROUPS))
def test_parallelize_refuses_the_step_before_it_updates(codes):
  clean = not_finite.examples(codes)
  bad = [not_finite.examples(codes, case) for case in not_finite.CASES]
  parallel = parallel_of(codes, [clean, *bad, clean])
  parallel.step()
  before = params(parallel)
  for _, _, everyone in not_finite.CASES:
    where = r'\[0 1\]' if everyone else r'\[1\]'
    with pytest.raises(errors.TrainingError, match=f'^Step 2: .*{where}'):
      parallel.step()
    not_finite.assert_unchanged(params(parallel), before)
  # A residual that was not finite would come back now.
  parallel.step()
  parallel.check_equal()
  assert parallel.steps == 2


@pytest.mark.slow
def test_a_refused_step_does_not_affect_the_next():
  found = []
  clean = not_finite.examples(SOME)
  bad = not_finite.examples(SOME, ONE_NAN)
  for batches in ([clean, bad, clean], [clean, clean]):
    parallel = parallel_of(SOME, batches)
    for batch in batches:
      if batch is bad:
        with pytest.raises(errors.TrainingError):
          parallel.step()
      else:
        parallel.step()
    found.append(params(parallel))
  not_finite.assert_unchanged(*found)


def test_a_trainer_in_a_custom_loop_refuses_the_step():
  model = not_finite.model(SOME)
  trainer = terngrad.Trainer(
    model, 'error_feedback+sign', num_workers=not_finite.WORKERS
  )
  trainer.step(*not_finite.examples(SOME), 0.1)
  before = {v.path: v.numpy() for v in model.weights}
  for case in not_finite.CASES[:2]:
    with pytest.raises(errors.TrainingError, match='^Step 2: .*of workers'):
      trainer.step(*not_finite.examples(SOME, case), 0.1)
    not_finite.assert_unchanged(
      {v.path: v.numpy() for v in model.weights}, before
    )
  trainer.step(*not_finite.examples(SOME), 0.1)
  assert trainer.steps == 2
