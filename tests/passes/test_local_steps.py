"""Local steps: what workers did by themselves is what is exchanged."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.step import optimizers
from terngrad.step import passes
from tests.step import small

COUNT, WORKERS, RATE = 3, 2, 0.05


def trained(build=small.dense_net, **options):
  options = {
    'devices': 1,
    'workers': WORKERS,
    'batch': 24,
    'codec': 'identity',
    'optimizer': optimizers.GradientDescent(),
    'local': small.Local(COUNT),
  } | options
  return small.at_its_start(build, **options)


def by_itself(training, images, labels, momentum=0.0):
  """A worker's parameters after its own steps, in NumPy and eager passes."""
  values = [v.numpy() for v in training.replicas[0].trainable]
  velocities = [np.zeros_like(v) for v in values]
  decay = passes.ModelPass(training.model, training.plan).decay.gradients
  for batch, batch_labels in zip(
    np.split(images, COUNT), np.split(labels, COUNT), strict=True
  ):
    tensors = [tf.constant(v) for v in values]
    gradients, _, _ = training.node_pass.gradients(
      tensors, [], batch, batch_labels, tf.zeros([2], tf.uint32)
    )
    for i, decayed in enumerate(decay(tensors)):
      gradient = gradients[i] if decayed is None else gradients[i] + decayed
      velocities[i] = momentum * velocities[i] + gradient
      values[i] = values[i] - RATE * velocities[i]
  return values


@pytest.mark.usefixtures('eager_in_gate')
@pytest.mark.parametrize('momentum', [0.0, 0.9])
@pytest.mark.gate_every(2)
def test_plain_descent_at_rate_1_averages_the_workers(momentum):
  training = trained(local=small.Local(COUNT, f'momentum:momentum={momentum}'))
  images, labels = (x.numpy() for x in small.batch_of(0, training.shape))
  expected = [
    by_itself(training, *batch, momentum)
    for batch in zip(images, labels, strict=True)
  ]
  training.run(1, rate=RATE)
  for variable, *values in zip(
    training.replicas[0].trainable, *expected, strict=True
  ):
    np.testing.assert_allclose(
      variable.numpy(), np.mean(values, axis=0), rtol=1e-5, atol=1e-6
    )


@pytest.mark.usefixtures('eager_functions')
def test_the_outer_optimizer_receives_the_mean_change():
  training = trained(
    optimizer=optimizers.Nesterov(0.9), local=small.Local(COUNT, outer_rate=0.7)
  )
  images, labels = (x.numpy() for x in small.batch_of(0, training.shape))
  before = [v.numpy() for v in training.replicas[0].trainable]
  ended = [
    by_itself(training, *one) for one in zip(images, labels, strict=True)
  ]
  training.run(1, rate=RATE)
  for variable, start, *ends in zip(
    training.replicas[0].trainable, before, *ended, strict=True
  ):
    change = start - np.mean(ends, axis=0)
    # The velocity begins at 0.
    expected = start - 0.7 * (change + 0.9 * change)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
  'codec',
  ['ternary', pytest.param('error_feedback+sign', marks=pytest.mark.slow)],
)
def test_nodes_and_towers_end_at_the_same_bits(codec):
  options = {
    'build': small.conv_net,
    'codec': codec,
    'workers': 4,
    'local': small.Local(COUNT, 'momentum:momentum=0.9', 0.5),
    # Without them XLA would compile the code of each layout.
    'on_kernels': True,
  }
  nodes, towers = trained(devices=1, **options), trained(devices=2, **options)
  nodes.run(3)
  towers.run(3)
  for index in range(2):
    np.testing.assert_array_equal(towers.values(index), nodes.values())


@pytest.mark.usefixtures('eager_functions')
def test_statistics_follow_every_local_step():
  one = trained(small.conv_net, local=small.Local(1), workers=1, batch=8)
  three = trained(small.conv_net, workers=1)
  start = [v.numpy() for v in one.replicas[0].statistics]
  for training in (one, three):
    training.run(1)
  moved = [
    np.abs(training.replicas[0].statistics[1].numpy() - start[1]).max()
    for training in (one, three)
  ]
  assert moved[1] > 2 * moved[0]


@pytest.mark.usefixtures('eager_functions')
def test_values_that_are_not_finite_in_a_local_step_are_reported():
  training = trained()
  images, labels = small.batch_of(0, training.shape)
  spoilt = images.numpy()
  spoilt[1, -1] = np.inf
  result = training.take(0, spoilt, labels)
  assert not np.isfinite(result.shared.numpy()).all()
