"""Batches that are divided by the speed of devices."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.config import options as options_lib
from terngrad.config import training as configs
from terngrad.step import passes
from terngrad.step import step as steps
from terngrad.training import assembly
from terngrad.training import device_speeds
from terngrad.training import shares

BATCH, RATE = 16, 0.5


def config_of(num_gpus, **options):
  config = options_lib.build(
    configs.TrainConfig,
    dataset_name='mnist',
    batch_size=BATCH,
    benchmark_mode=True,
    optimizer='gd',
    net='lenet',
    image_size=8,
    num_gpus=num_gpus,
    weight_decay=0.1,
    **options,
  )
  config.validate()
  return config


def take_step(run):
  """What a step with the first batch leads to."""
  images, labels = next(run.batches(0))
  result = run.coded_step.take(
    images,
    labels,
    tf.constant(0, tf.int64),
    tf.constant(RATE),
    tf.constant(0.5),
  )
  parameters = [
    [v.numpy() for v in replica.trainable] for replica in run.replicas
  ]
  return result, parameters


class TestDivide:
  @pytest.mark.parametrize('seed', range(20))
  def test_shares_are_integers_less_than_one_from_exact(self, seed):
    draw = np.random.default_rng(seed)
    weights = draw.uniform(0.1, 1, draw.integers(1, 9))
    # So many that nobody needs a share of more than its part.
    batch_size = int(draw.integers(100, 1000))
    found = shares.divide(batch_size, weights)
    assert sum(found) == batch_size
    exact = batch_size * weights / weights.sum()
    assert np.all(np.abs(np.array(found) - exact) < 1)

  def test_every_worker_gets_an_example(self):
    assert shares.divide(5, [1000, 1, 1, 0.001]) == (2, 1, 1, 1)
    assert shares.divide(3, [1, 1000, 1]) == (1, 1, 1)


@pytest.mark.usefixtures('eager_functions')
def test_unequal_shares_take_the_same_step_as_one_device():
  unequal, single = (
    assembly.assemble(config_of(num_gpus, **weights))
    for num_gpus, weights in [
      (2, {'device_weights': ('1', '0.5')}),
      (1, {}),
    ]
  )
  assert unequal.shares == (11, 5)
  images, labels = next(unequal.batches(0))
  assert [len(part) for part in images] == [11, 5]
  np.testing.assert_array_equal(labels.values, next(single.batches(0))[1][0])
  (ours, parameters), (others, (expected,)) = map(take_step, (unequal, single))
  np.testing.assert_allclose(
    ours.entropy.numpy().mean(), others.entropy.numpy(), rtol=1e-6
  )
  np.testing.assert_allclose(
    ours.accuracy.numpy().mean(), others.accuracy.numpy(), rtol=1e-6
  )
  for found in parameters:
    for here, there, value in zip(found, parameters[0], expected, strict=True):
      np.testing.assert_array_equal(here, there)
      # Sums of float32 in another order.
      np.testing.assert_allclose(here, value, atol=1e-6)


@pytest.mark.usefixtures('eager_functions')
def test_equal_weights_are_bit_identical_to_no_weights():
  one, other = (
    take_step(assembly.assemble(config_of(2, grad_bits=1, **weights)))
    for weights in ({}, {'device_weights': ('0.5', '0.5')})
  )
  for parameters in zip(*one[1], *other[1], strict=True):
    for value in parameters[1:]:
      np.testing.assert_array_equal(parameters[0], value)


@pytest.mark.usefixtures('eager_functions')
def test_nodes_of_a_device_divide_its_share():
  config = config_of(
    2, num_nodes=4, grad_bits=1, device_weights=('3', '1'), codec='ternary'
  )
  run = assembly.assemble(config)
  assert run.shares == (6, 2, 6, 2)
  result, (one, other) = take_step(run)
  assert np.isfinite(result.entropy.numpy()).all()
  for here, there in zip(one, other, strict=True):
    np.testing.assert_array_equal(here, there)


class SlowDevice(passes.Pass):
  """A clock, and passes that take so many of its seconds by their device."""

  def __init__(self, node_pass, seconds):
    super().__init__(node_pass.num_statistics)
    self.now = 0.0
    self._gradients = node_pass.gradients
    self._seconds = seconds

  def clock(self):
    return self.now

  def gradients(self, parameters, *rest):
    here = tf.zeros([]).device
    number = tf.DeviceSpec.from_string(here).device_index

    def advance(loss):
      self.now += self._seconds[number]
      return loss

    gradients, scores, moments = self._gradients(parameters, *rest)
    scores = tf.ensure_shape(
      tf.numpy_function(advance, [scores], tf.float32), [2]
    )
    return gradients, scores, moments


def test_a_device_that_is_four_times_slower_gets_a_quarter(monkeypatch):
  measure = device_speeds.weights

  def throttled(training, shape):
    slow = SlowDevice(training.node_pass, {0: 1.0, 1: 4.0})
    training = training._replace(node_pass=slow)
    return measure(training, shape, slow.clock)

  monkeypatch.setattr(device_speeds, 'weights', throttled)
  run = assembly.assemble(config_of(2, device_weights=('auto',)))
  assert run.shares == (13, 3)
  assert run.layout.may_change['device_weights'] == '13,3'


def test_every_device_gets_a_measured_speed():
  run_of = {}

  def keep(training, codec):
    run_of['training'] = training
    return steps.TrainStep(training, codec)

  config = config_of(2)
  context = assembly.process_context(config)
  context.make_step = keep
  assembly.assemble(config, context)
  found = device_speeds.weights(run_of['training'], [4, 8, 8, 1])
  assert len(found) == 2
  assert max(found) == 1
  assert min(found) >= 0.05


def test_device_names_replace_the_number_of_devices():
  run = assembly.assemble(config_of(1, devices=('cpu:1', 'cpu:0')))
  assert run.exchange.devices == ('/CPU:1', '/CPU:0')
  assert len(run.replicas) == 2


@pytest.mark.parametrize(
  ('options', 'match'),
  [
    ({'device_weights': ('1',)}, 'each of the 2 devices .* received 1'),
    ({'device_weights': ('1', 'x')}, "auto or one number .* received '1,x'"),
    ({'device_weights': ('1', 'nan')}, 'received nan'),
    ({'device_weights': ('1', '0')}, 'from 0.001 to 1000'),
    (
      {'device_weights': ('auto',), 'gradient_accumulation_steps': 2},
      'none beside --gradient_accumulation_steps=2',
    ),
    (
      {'device_weights': ('auto',), 'bn_statistics': 'synchronized'},
      'none beside --bn_statistics=synchronized',
    ),
    (
      {'device_weights': ('auto',), 'num_nodes': 17},
      'batch_size: expected a number >= 17',
    ),
  ],
)
def test_invalid_device_weights_are_refused(options, match):
  with pytest.raises(errors.ConfigError, match=match):
    config_of(2, **options)


@pytest.mark.parametrize('name', ['cpu:7', 'tpu:0'])
def test_missing_devices_are_refused(name):
  with pytest.raises(errors.ConfigError, match='devices: expected'):
    assembly.assemble(config_of(1, devices=(name,)))
