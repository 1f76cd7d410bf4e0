"""What a configuration says reaches the step."""

import numpy as np
import pytest
import tensorflow as tf

from slim import errors as data_errors
from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import resume
from terngrad.config import options as options_lib
from terngrad.config import training as configs
from terngrad.step import replicas
from terngrad.training import assembly
from terngrad.training import execution
from terngrad.training import run_codecs

RATE, DECAY, NORM = 0.5, 0.25, 0.001


def lenet(**options):
  """A run of LeNet on images of 8 pixels, two nodes on two devices."""
  return assembled(net='lenet', image_size=8, num_gpus=2, **options)


def assembled(**options):
  """A run on batches of 8 that nothing is read for."""
  config = options_lib.build(
    configs.TrainConfig,
    dataset_name='mnist',
    batch_size=8,
    benchmark_mode=True,
    optimizer='gd',
    **options,
  )
  config.validate()
  return assembly.assemble(config)


def test_steps_exchange_fragments_in_turn():
  run = lenet(local_steps=4, fragments=2, inner_optimizer='adamw')
  codecs = [run.select_step(step, False)[1] for step in range(3)]
  assert codecs[0] == codecs[2] != codecs[1]
  for one, layers in zip(codecs, ('conv1', 'conv2'), strict=False):
    assert {run.parameters[i].split('/')[0] for i in one.variables} >= {layers}
  covered = sorted(codecs[0].variables + codecs[1].variables)
  assert covered == list(range(len(run.parameters)))
  kept = {name.split('/')[0] for name in run.store.variables}
  assert kept == {
    *('inner_steps', 'inner_first_moment', 'inner_second_moment'),
    *('local_exchanges', 'local_parameters'),
  }


def test_another_inner_optimizer_is_refused_on_resume(tmp_path):
  before, now = (
    lenet(local_steps=2, inner_optimizer=text)
    for text in ('muon:beta=0.9', 'adamw')
  )
  checkpoints.Writer(
    str(tmp_path), before.layout, before.replicas, before.names
  ).save(1)
  with pytest.raises(
    errors.CheckpointError,
    match='with inner_optimizer adamw, received one with muon',
  ):
    resume.continue_run(str(tmp_path), now, None)
  # Without local steps nothing is compared.
  assert 'inner_optimizer' not in lenet().layout.must_keep


def test_a_warm_up_of_all_variables_is_refused_beside_fragments():
  with pytest.raises(errors.ConfigError, match='fragments: expected 1 beside'):
    lenet(
      local_steps=4,
      fragments=2,
      codec='one_bit_adam+sign',
      inner_optimizer='adamw',
    )


def test_more_fragments_than_layers_are_refused():
  with pytest.raises(
    errors.ConfigError, match='at most 4, the number of layers'
  ):
    lenet(local_steps=5, fragments=5)


def take_step(run, label, rate):
  images = tf.random.stateless_normal([2, 4, 8, 8, 1], [3, 4])
  return run.float_step.take(
    images,
    tf.fill([2, 4], label),
    tf.constant(0, tf.int64),
    tf.constant(rate),
    tf.constant(0.5),
  )


@pytest.mark.usefixtures('eager_functions')
def test_options_of_the_loss_and_the_update_reach_the_step():
  run = lenet(
    weight_decay=DECAY,
    label_smoothing=1.0,
    clip_gradient_norm=NORM,
    decoupled_weight_decay=True,
    gradient_accumulation_steps=2,
    bn_statistics='per_device',
  )
  # A label that is spread over all classes says nothing.
  one, other = (take_step(run, label, 0.0).entropy.numpy() for label in (1, 7))
  np.testing.assert_array_equal(one, other)
  first = run.replicas[0]
  before = [v.numpy() for v in first.trainable]
  take_step(run, 1, RATE)
  # Kernels shrink by themselves; the rest of the update has the norm.
  kept = [
    1 - RATE * DECAY if name.endswith('kernel') else 1.0
    for name in run.parameters
  ]
  moved = [
    np.float64(v.numpy()) - np.float64(b) * k
    for v, b, k in zip(first.trainable, before, kept, strict=True)
  ]
  norm = np.sqrt(sum(np.sum(np.square(part)) for part in moved))
  np.testing.assert_allclose(norm, RATE * NORM, rtol=1e-3)
  assert first.local_statistics
  assert run.layout.bn_statistics == 'per_device'
  replicas.check_equal(run.replicas, run.names)


@pytest.mark.slow
def test_moving_statistics_have_the_chosen_decay():
  run = assembled(net='alexnet', image_size=57, batch_norm_decay=0.5)
  images = tf.random.stateless_normal([1, 8, 57, 57, 1], [3, 4])
  means = []
  for number in range(3):
    # With a rate of 0 every step sees the same means.
    run.float_step.take(
      images,
      tf.fill([1, 8], 1),
      tf.constant(number, tf.int64),
      tf.constant(0.0),
      tf.constant(0.5),
    )
    means.append(run.replicas[0].statistics[0].numpy())
  assert np.any(means[0])
  # 1/2 of the batch's mean after the first step, 7/8 after the third.
  np.testing.assert_allclose(means[2], means[0] * 1.75, rtol=1e-3)


def test_initializer_changes_kernels_and_not_biases():
  default, other = lenet(), lenet(initializer='normal:stddev=0.5')
  for name, before, now in zip(
    default.parameters,
    default.replicas[0].trainable,
    other.replicas[0].trainable,
    strict=True,
  ):
    if name.endswith('kernel'):
      # Eight deviations of what is found, after 500 values or more.
      found, size = np.std(now.numpy()), now.numpy().size
      assert abs(found - 0.5) < 8 * 0.5 / np.sqrt(2 * size), name
    else:
      np.testing.assert_array_equal(before.numpy(), now.numpy())


def test_batch_norm_decay_without_batch_norm_is_refused():
  with pytest.raises(
    data_errors.DataError,
    match='batch_norm_decay: expected a net with batch normalization, received '
    'lenet, which has none. Omit --batch_norm_decay',
  ):
    lenet(batch_norm_decay=0.9)


@pytest.mark.slow
def test_nodes_accumulate_in_the_chosen_number_of_parts():
  def loops(parts):
    run = lenet(gradient_accumulation_steps=parts)
    arguments = (
      *(tf.convert_to_tensor(t) for t in next(run.batches(0))),
      tf.constant(0, tf.int64),
      tf.constant(0.1),
      tf.constant(0.5),
    )
    graph = run.float_step.take.get_concrete_function(*arguments).graph
    definition = graph.as_graph_def()
    nodes = [*definition.node]
    for function in definition.library.function:
      nodes += function.node_def
    return sum(node.op in ('While', 'StatelessWhile') for node in nodes)

  # One a device.
  assert loops(2) == loops(1) + 2


def test_warm_up_codecs_precede_the_codec_of_the_run():
  run = lenet(
    codec='error_feedback+topk:ratio=0.01',
    codec_warm_up='2 -> identity; 5 -> error_feedback+topk:ratio=0.1',
  )
  words = [run.select_step(step, False)[1].num_words for step in range(7)]
  elements = run.codec.num_elements
  assert words[:2] == [elements] * 2
  assert words[2:5] == [run.warm_up[1].codec.num_words] * 3
  assert words[5:] == [run.codec.num_words] * 2
  assert run.codec.num_words < words[2] < elements
  assert run.select_step(3, True) == (run.float_step, run.float_codec)


@pytest.mark.parametrize(
  ('warm_up', 'message'),
  [
    ('5 -> topk', r'--codec \(residual\), received those of .* \(none\)'),
    ('5 -> dgc', r'\(residual\), received those of .* \(residual, velocity\)'),
  ],
)
def test_warm_up_codecs_must_have_the_same_states(warm_up, message):
  with pytest.raises(errors.ConfigError, match=message):
    lenet(codec='error_feedback+topk', codec_warm_up=warm_up)


def test_warm_up_states_of_other_shapes_are_refused():
  with pytest.raises(errors.ConfigError, match='the same names and shapes'):
    lenet(codec='powersgd:rank=2', codec_warm_up='5 -> powersgd:rank=1')


def test_a_code_with_a_warm_up_has_float_steps_first():
  code = 'one_bit_adam:warm_up=3+sign'
  run = lenet(codec=code)
  codecs = [run.select_step(step, False)[1] for step in range(5)]
  assert codecs == [run.float_codec] * 3 + [run.codec] * 2
  # The logits, which are sent as float32, get updates too.
  for codec in codecs:
    assert len(codec.buckets) == 2
    assert all(bucket.method.makes_updates for bucket in codec.buckets)
  with pytest.raises(errors.ConfigError, match='none beside adam.* first 3 st'):
    lenet(codec=code, codec_warm_up='5 -> identity')


@pytest.mark.parametrize(
  ('optimizer', 'decay', 'depends'),
  [
    ('gd', 'exponential', False),
    ('gd', 'polynomial', True),
    ('adam', 'polynomial', False),
  ],
)
def test_max_steps_matters_only_if_learning_rates_depend_on_it(
  optimizer, decay, depends
):
  rates = [
    assembly.assemble(
      options_lib.build(
        configs.TrainConfig,
        net='lenet',
        image_size=8,
        dataset_name='mnist',
        batch_size=8,
        benchmark_mode=True,
        optimizer=optimizer,
        learning_rate_decay_type=decay,
        max_steps=max_steps,
      )
    )
    for max_steps in (10, 20)
  ]
  assert (rates[0].learning_rate(5) != rates[1].learning_rate(5)) == depends
  said = [run.layout.may_change.get('max_steps') for run in rates]
  assert said == ([10, 20] if depends else [None, None])


def test_shares_are_requested_only_with_device_weights(monkeypatch):
  """Contexts of parameter servers deal equal batches and know no other."""
  requested = []

  def of_equal_workers(config):
    context = process_context(config)
    context.batches = lambda step: requested.append(step)
    return context

  process_context = assembly.process_context
  monkeypatch.setattr(assembly, 'process_context', of_equal_workers)
  lenet().batches(3)
  assert requested == [3]
  with pytest.raises(TypeError, match='shares'):
    lenet(device_weights=('3', '1')).batches(3)


def of_groups():
  return assembled(net='lenet', image_size=8, num_gpus=4, devices_per_worker=2)


def test_several_devices_may_be_one_worker():
  run = of_groups()
  assert run.exchange.num_workers == 2 and len(run.replicas) == 4
  lines = execution.remarks(run.codec, run.exchange)
  assert 'workers: 2 of 2 devices each, which average' in ' '.join(lines)


@pytest.mark.slow
def test_devices_of_a_worker_send_one_message():
  run = of_groups()
  result = take_step(run, 1, RATE)
  assert [len(words) for words in result.words] == [1, 0, 1, 0]
  assert result.entropy.shape == result.sent.shape == [2]
  replicas.check_equal(run.replicas, run.names)


def test_gpus_of_several_tasks_encode_without_gpu_kernels(monkeypatch):
  """Only the chief's process loads them."""
  monkeypatch.setattr(run_codecs.bucketing, 'on_gpus', lambda _: 'kernels')
  names = [f'/job:worker/replica:0/task:{i}/device:GPU:0' for i in range(2)]
  assert run_codecs.on_devices('codec', names[:1]) == 'kernels'
  assert run_codecs.on_devices('codec', names) == 'codec'
