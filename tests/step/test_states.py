"""What methods remember in training, beside what checkpoints hold of it."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods import registry
from terngrad.reduce import bucketing
from terngrad.reduce import states
from terngrad.step import loss_scaling
from terngrad.step import step as steps
from tests.codec import one_round
from tests.step import small

POWERSGD = 'error_feedback+powersgd:min_compression=0.1'


def state_values(training):
  """All states of a training, as one list of arrays."""
  found = [v for d in training.states.workers for vs in d.values() for v in vs]
  for replica in training.replicas:
    found += replica.shared.values()
  return [variable.numpy() for variable in found]


def assert_same(received, expected):
  for one, other in zip(received, expected, strict=True):
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
  'codec',
  [
    POWERSGD,
    pytest.param('error_feedback+topk:ratio=0.1', marks=pytest.mark.slow),
  ],
)
@pytest.mark.slow
def test_a_step_that_loss_scaling_skips_changes_no_state(codec):
  # In parts: a gradient that is not finite in one of them skips all.
  training = small.Training(
    small.dense_net,
    devices=2,
    workers=4,
    codec=codec,
    scaling=loss_scaling.START,
    part_bytes=200,
  )
  training.run(2)
  before = state_values(training)
  parameters = [v.numpy() for v in training.replicas[0].trainable]
  assert all(np.any(value) for value in before)
  images, labels = small.batch_of(2, training.shape)
  last = tf.range(4)[:, None, None, None, None] == 3
  damaged = tf.where(last, np.nan, images)
  training.take(2, damaged, labels)
  assert_same(state_values(training), before)
  assert_same([v.numpy() for v in training.replicas[0].trainable], parameters)
  training.take(2, images, labels)
  changed = zip(state_values(training), before, strict=True)
  assert all(np.any(now != old) for now, old in changed)


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize(
  'codec',
  [pytest.param(POWERSGD, marks=pytest.mark.slow), 'error_feedback+sign'],
)
def test_a_step_with_float_gradients_sends_the_residuals(codec):
  training = small.Training(
    small.dense_net, devices=2, workers=4, codec=codec, on_kernels=True
  )
  training.run(2)
  owed = [
    np.mean([v.numpy() for d in training.states.workers for v in d[key]], 0)
    for key in training.states.workers[0]
  ]
  plain = registry.method('identity')
  train_step = steps.TrainStep(
    steps.Training(
      training.node_pass,
      training.exchange,
      training.replicas,
      training.states,
      training.optimizer,
      seed=11,
    ),
    bucketing.in_float(training.codec, plain),
  )
  before = training.replicas[0].slots[0]['momentum'].numpy()
  numbers = tf.constant(2, tf.int64), tf.constant(0.0), tf.constant(0.5)
  result = train_step.take(*small.batch_of(2, training.shape), *numbers)
  assert any(np.any(value) for value in owed)
  for of_device in training.states.workers:
    for variables in of_device.values():
      assert not any(np.any(v.numpy()) for v in variables)
  # Momentum took in the mean of the gradients and of what was owed.
  sent = one_round.decode_mean(
    bucketing.in_float(training.codec, plain),
    [result.payloads(index) for index in range(2)],
    result.shared,
  )
  velocity = training.replicas[0].slots[0]['momentum'].numpy()
  np.testing.assert_allclose(
    velocity, 0.9 * before + sent[0].numpy(), rtol=1e-5, atol=1e-7
  )
  # The rate is 0: the same step again sends the gradients without residuals.
  again = train_step.take(*small.batch_of(2, training.shape), *numbers)
  alone = one_round.decode_mean(
    bucketing.in_float(training.codec, plain),
    [again.payloads(index) for index in range(2)],
    again.shared,
  )
  for key, mean in zip(training.states.workers[0], owed, strict=True):
    difference = sent[key.variable].numpy() - alone[key.variable].numpy()
    np.testing.assert_allclose(difference, mean, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures('eager_functions')
def test_worker_states_differ_and_shared_states_are_equal_on_replicas():
  training = small.Training(
    small.dense_net, devices=2, workers=4, codec=POWERSGD
  )
  declared = states.declarations(training.codec)
  owners = {key.name: state.owner for key, state in declared.items()}
  assert owners == {'residual': method.WORKER, 'powersgd_q': method.SHARED}
  training.run(2)
  workers = training.states.workers
  for key in workers[0]:
    values = [v.numpy() for d in workers for v in d[key]]
    assert len(values) == 4
    for i, value in enumerate(values):
      assert not any(np.array_equal(value, v) for v in values[:i])
  first, second = (replica.shared for replica in training.replicas)
  assert set(first) == {k for k in declared if k.name == 'powersgd_q'}
  for key, variable in first.items():
    np.testing.assert_array_equal(variable, second[key])
