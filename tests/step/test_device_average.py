"""A worker of several devices takes the step of one device with its batch."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.step import optimizers
from terngrad.step import replicas
from tests.step import small

STEPS = 3


def trained(devices=4, per_worker=2, *, build=small.dense_net, **options):
  """Trains; a `small.Training` and the words that each worker sent."""
  options = {'codec': 'identity', 'batch': 16} | options
  training = small.at_its_start(
    build,
    devices=devices,
    workers=devices // per_worker,
    per_worker=per_worker,
    **options,
  )
  result = training.run(STEPS)
  return training, result.sent.numpy()


def assert_replicas_equal(training):
  names = replicas.variable_names(training.plan, training.replicas[0])
  replicas.check_equal(training.replicas, names)
  for index in range(1, len(training.replicas)):
    np.testing.assert_array_equal(training.values(index), training.values())


def assert_close(ours, others):
  """Equal up to float32 sums in another order, over all steps."""
  for here, there in zip(
    ours.replicas[0].variables(), others.replicas[0].variables(), strict=True
  ):
    np.testing.assert_allclose(
      here.numpy(), there.numpy(), rtol=1e-4, atol=2e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(('devices', 'per_worker'), [(4, 2), (3, 3)])
def test_a_worker_takes_the_step_of_one_device(devices, per_worker):
  options = {'batch': 48}
  ours, _ = trained(devices, per_worker, **options)
  others, _ = trained(devices // per_worker, 1, **options)
  assert_close(ours, others)
  assert_replicas_equal(ours)


@pytest.mark.slow
@pytest.mark.parametrize(
  'codec',
  [
    'ternary',
    'error_feedback+bidirectional+ternary',
    'powersgd:rank=2',
    'error_feedback+topk:ratio=0.1',
    'ternary:sharing=requantize',
  ],
)
def test_replicas_are_equal_and_runs_repeat(codec):
  options = {'codec': codec, 'on_kernels': True}
  training, _ = trained(**options)
  first = training.values()
  assert_replicas_equal(training)
  again, _ = trained(**options)
  np.testing.assert_array_equal(again.values(), first)


@pytest.mark.slow
def test_a_run_that_is_built_again_has_the_same_bits():
  def bits():
    training = small.Training(
      small.conv_net, devices=4, workers=2, per_worker=2, batch=16
    )
    training.run(STEPS)
    return training.values()

  np.testing.assert_array_equal(bits(), bits())


@pytest.mark.slow
def test_two_workers_of_two_devices_send_half_of_what_four_workers_send():
  training, sent = trained(codec='ternary', on_kernels=True)
  _, of_four = trained(4, 1, codec='ternary', on_kernels=True)
  assert len(sent) == 2 and len(of_four) == 4
  assert 2 * sent.sum() == of_four.sum() == 4 * training.codec.num_words


@pytest.mark.slow
def test_statistics_are_those_of_all_devices():
  ours, _ = trained(build=small.conv_net)
  others, _ = trained(4, 1, build=small.conv_net)
  # Four nodes normalize the same examples, and all of them are averaged.
  for here, there in zip(
    ours.replicas[0].statistics, others.replicas[0].statistics, strict=True
  ):
    np.testing.assert_allclose(here.numpy(), there.numpy(), rtol=1e-4)
  assert_replicas_equal(ours)


@pytest.mark.slow
def test_parts_and_a_loss_scale_change_only_rounding():
  ours, _ = trained(parts=2, scaling=(2.0**10, 0.0))
  others, _ = trained(2, 1, scaling=(2.0**10, 0.0))
  assert_close(ours, others)
  assert_replicas_equal(ours)


@pytest.mark.slow
def test_devices_drop_different_activations():
  def dropping():
    return small.conv_net(dropout=0.5)

  training, _ = trained(build=dropping, batch=16)
  (one, *_), key = training.step._passes, tf.zeros([2], tf.uint32)
  node_pass = one.on_all_devices(training.node_pass, False)
  images, labels = small.batch_of(0, [4])
  # Both devices have the same examples.
  images, labels = (tf.concat([x, x], axis=0) for x in (images, labels))
  values = [tf.convert_to_tensor(v) for v in training.replicas[0].trainable]
  moving = [tf.convert_to_tensor(v) for v in training.replicas[0].statistics]
  both = node_pass.gradients(values, moving, images, labels, key)[0]
  alone = training.node_pass.gradients(
    values, moving, images[:4], labels[:4], key
  )[0]
  assert not np.allclose(both[-1], alone[-1])


DESCENT, NESTEROV = optimizers.GradientDescent(), optimizers.Nesterov(0.9)
LOCAL = {
  'local': small.Local(2, 'momentum:momentum=0.9'),
  'optimizer': DESCENT,
}


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize(
  ('devices', 'options'),
  [
    (2, LOCAL),
    pytest.param(4, LOCAL, marks=pytest.mark.slow),
    pytest.param(
      4,
      {
        'local': small.Local(3, 'adamw', 0.7, keeps=True, overlap=1),
        'optimizer': NESTEROV,
        'fragments': 2,
        'batch': 24,
      },
      marks=pytest.mark.slow,
    ),
  ],
)
def test_local_steps_are_those_of_one_device(devices, options):
  ours, sent = trained(devices, 2, **options)
  first = ours.values()
  assert_replicas_equal(ours)
  others, of_single = trained(devices // 2, 1, **options)
  assert_close(ours, others)
  np.testing.assert_array_equal(sent, of_single)
  again, _ = trained(devices, 2, **options)
  np.testing.assert_array_equal(again.values(), first)


@pytest.mark.slow
def test_local_steps_average_moving_statistics():
  ours, _ = trained(build=small.conv_net, **LOCAL)
  others, _ = trained(4, 1, build=small.conv_net, **LOCAL)
  assert_replicas_equal(ours)
  for here, there in zip(
    ours.replicas[0].statistics, others.replicas[0].statistics, strict=True
  ):
    # The nodes of single devices have other parameters after a local step.
    np.testing.assert_allclose(here.numpy(), there.numpy(), rtol=0.1, atol=0.02)


@pytest.mark.slow
def test_local_steps_of_single_devices_differ():
  ours, _ = trained(**LOCAL)
  four, _ = trained(4, 1, **LOCAL)
  with pytest.raises(AssertionError):
    assert_close(ours, four)
