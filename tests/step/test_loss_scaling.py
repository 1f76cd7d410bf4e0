import gc
import types

import numpy as np
import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.config import options as options_lib
from terngrad.config import training as configs
from terngrad.step import loss_scaling
from terngrad.step import schedules
from terngrad.training import meter
from terngrad.training import records
from terngrad.training import start
from tests.step import small


def scaling(scale, steps=0.0):
  return tuple(tf.Variable(value) for value in (scale, steps))


def followed(scale, steps, finite):
  there = scaling(scale, steps)
  loss_scaling.update_scale(there, tf.constant(finite))
  return tuple(float(variable) for variable in there)


@pytest.mark.parametrize(
  ('before', 'finite', 'after'),
  [
    ((8.0, 5.0), True, (8.0, 6.0)),
    ((8.0, 5.0), False, (4.0, 0.0)),
    ((8.0, 1999.0), True, (16.0, 0.0)),
    ((2.0**24, 1999.0), True, (2.0**24, 0.0)),
    ((1.0, 5.0), False, (1.0, 0.0)),
  ],
)
def test_the_scale_halves_on_overflow_and_doubles_after_2000_steps(
  before, finite, after
):
  assert followed(*before, finite) == after


def test_a_scale_falls_until_it_is_1():
  assert loss_scaling.can_fall(scaling(2.0))
  assert not loss_scaling.can_fall(scaling(1.0))
  assert not loss_scaling.can_fall(())


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_one_element_that_is_not_finite_is_found(value):
  tensors = [tf.zeros([3]), tf.constant([1.0, value])]
  assert not loss_scaling.all_finite(tensors)
  assert loss_scaling.all_finite(tensors[:1])


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize(
  'codec', [pytest.param('identity', marks=pytest.mark.slow), 'ternary']
)
def test_an_overflow_on_one_worker_skips_the_step_on_all_devices(codec):
  training = small.Training(
    small.conv_net,
    devices=2,
    workers=2,
    codec=codec,
    scaling=(2.0**15, 7.0),
    on_kernels=True,
  )
  training.run(1)
  before = training.values()[:-2]
  images, labels = small.batch_of(1, training.shape)
  # The second worker's only.
  spoilt = tf.concat([images[:1], images[1:] * float('inf')], axis=0)
  training.take(1, spoilt, labels)
  for index, replica in enumerate(training.replicas):
    np.testing.assert_array_equal(training.values(index)[:-2], before)
    assert [float(v) for v in replica.scaling] == [2.0**14, 0.0]
  training.run(1, first=2)
  assert (training.values()[:-2] != before).any()
  np.testing.assert_array_equal(training.values(1), training.values())


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize('codec', ['fp16', 'qsgd', 'error_feedback+thc'])
def test_an_overflow_is_skipped_if_the_code_makes_it_finite(codec):
  training = small.Training(
    small.dense_net,
    devices=1,
    workers=2,
    codec=codec,
    scaling=loss_scaling.START,
    on_kernels=True,
  )
  before = training.values()[:-2]
  images, labels = small.batch_of(0, training.shape)
  # Their gradients are infinite, but not NaN, of which some codes make NaN.
  training.take(0, images * 1e36, labels)
  np.testing.assert_array_equal(training.values()[:-2], before)
  assert [float(v) for v in training.replicas[0].scaling] == [2.0**14, 0.0]


def test_models_that_are_gone_leave_their_program_to_others():
  def values():
    options = {'codec': 'identity', 'scaling': loss_scaling.START}
    training = small.Training(small.dense_net, devices=1, workers=1, **options)
    training.run(1)
    return training.values()

  first = values()
  gc.collect()
  np.testing.assert_array_equal(values(), first)


def test_a_scaled_loss_gives_the_gradients_of_the_loss():
  # Powers of two change no bit, so that the steps are equal to the bit.
  plain = small.Training(
    small.dense_net, devices=1, workers=2, codec='identity'
  )
  scaled = small.Training(
    small.dense_net,
    devices=1,
    workers=2,
    codec='identity',
    scaling=loss_scaling.START,
  )
  plain.run(2)
  scaled.run(2)
  np.testing.assert_array_equal(scaled.values()[:-2], plain.values())


def test_a_run_that_overflows_at_every_scale_stops(tmp_path):
  # After one step with this rate no loss is finite.
  config = options_lib.build(
    configs.TrainConfig,
    net='lenet',
    dataset_name='mnist',
    image_size=8,
    batch_size=4,
    benchmark_mode=True,
    dtype='float16',
    initial_learning_rate=1e20,
    max_steps=100,
    save_iter=10,
    train_dir=str(tmp_path),
  )
  # From 2**15 to 1 in the steps 2 to 16.
  with pytest.raises(errors.TrainingError, match='^Step 16: expected finite'):
    start.train(config, lambda line: None)
  scales = [r['loss_scale'] for r in records.read(tmp_path) if 'loss' in str(r)]
  assert scales == [2.0**6]
  assert checkpoints.newest(str(tmp_path)).endswith('-10')


def test_steps_that_overflow_do_not_change_the_smoothed_loss():
  gauge = meter.Meter(
    schedules.Epochs(100, 1), last={'entropy_loss_smoothed': 2.0}
  )
  for loss in (float('inf'), float('nan'), 1.0):
    gauge.add(
      types.SimpleNamespace(
        entropy=tf.constant([loss]),
        accuracy=tf.constant([0.0]),
        sent=tf.constant([1]),
        probes=tf.zeros([1, 1]),
      )
    )
  values = gauge.values(num_elements=1, learning_rate=0.1, regularization=0.0)
  assert values['entropy_loss_smoothed'] == pytest.approx(1.9)
