import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.codec.stages import random_bits
from terngrad.step import loss_scaling
from terngrad.step import optimizers
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import schedules
from terngrad.training import meter
from tests.step import small

# Floats, whose order counts, and codes, whose order does not. Draws that know
# the worker are below; the others differ in what one worker does.
CODECS = (
  'identity',
  'ternary',
  *(
    pytest.param(codec, marks=pytest.mark.slow)
    for codec in (
      'fp16',
      'eden3',
      'ternary:scaler_rule=stddev',
      'ternary:sharing=requantize',
      'ternary:dither=stratified,workers=3,group_size=64',
    )
  ),
)
DESCENT = optimizers.GradientDescent()
dropout_net = functools.partial(small.conv_net, dropout=0.4)


def trained(build, devices, workers, count=3, **options):
  training = small.Training(build, devices=devices, workers=workers, **options)
  training.run(count)
  return training


def assert_replicas_equal(training):
  for index in range(1, len(training.replicas)):
    np.testing.assert_array_equal(training.values(index), training.values())
  names = replicas.variable_names(training.plan, training.replicas[0])
  replicas.check_equal(training.replicas, names)


@pytest.mark.parametrize(
  'codec', [pytest.param('identity', marks=pytest.mark.slow), *CODECS[1:]]
)
@pytest.mark.slow
def test_nodes_on_one_device_equal_towers_to_the_bit(codec):
  # Of two devices the first has two of the three nodes.
  reference = trained(dropout_net, 1, 3, batch=12, codec=codec)
  towers = trained(dropout_net, 2, 3, batch=12, codec=codec)
  np.testing.assert_array_equal(towers.values(), reference.values())
  assert_replicas_equal(towers)


@pytest.mark.slow
def test_three_devices_equal_one_to_the_bit():
  codec = 'ternary:dither=stratified,workers=4'
  options = {'codec': codec, 'on_kernels': True}
  reference = trained(dropout_net, 1, 4, **options)
  towers = trained(dropout_net, 3, 4, **options)
  np.testing.assert_array_equal(towers.values(), reference.values())
  assert_replicas_equal(towers)


@pytest.mark.slow
@pytest.mark.parametrize('devices', [2, 4])
@pytest.mark.parametrize('build', [small.conv_net, small.dense_net])
def test_towers_of_every_layout_are_equal_after_many_steps(build, devices):
  reference = trained(build, 1, 4, count=50)
  towers = trained(build, devices, 4, count=50)
  np.testing.assert_array_equal(towers.values(), reference.values())
  assert_replicas_equal(towers)


@pytest.mark.slow
def test_codes_repeat_for_the_same_seed_and_differ_for_another():
  one, same, other = (
    trained(small.dense_net, 1, 2, seed=seed, on_kernels=True).values()
    for seed in (1, 1, 2)
  )
  np.testing.assert_array_equal(one, same)
  assert (one != other).any()


def test_a_differing_replica_is_named():
  training = small.Training(small.dense_net, devices=2, workers=2)
  training.replicas[1].slots[0]['momentum'][0, 0].assign(77.0)
  with pytest.raises(errors.TrainingError, match=r'fc/kernel/momentum.*CPU:1'):
    replicas.check_equal(
      training.replicas,
      replicas.variable_names(training.plan, training.replicas[0]),
    )


def plain_sgd(build, count, rate, batch):
  """Keras on the whole batch, without any code of ours."""
  model = build()
  model.compile(
    keras.optimizers.SGD(rate),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  for number in range(count):
    images, labels = small.batch_of(number, [batch])
    model.train_on_batch(images, labels)
  return [variable.numpy() for variable in model.trainable_variables]


@pytest.mark.usefixtures('eager_in_gate')
@pytest.mark.parametrize(
  ('devices', 'workers'),
  [(1, 1), pytest.param(2, 2, marks=pytest.mark.slow), (2, 8)],
)
@pytest.mark.gate_every(2)
def test_float32_towers_equal_plain_sgd_on_the_whole_batch(devices, workers):
  count, rate = 3, 0.05
  expected = plain_sgd(small.dense_net, count, rate, 8)
  training = small.at_its_start(
    small.dense_net,
    devices=devices,
    workers=workers,
    codec='identity',
    optimizer=DESCENT,
  )
  training.run(count)
  for name, variable, value in zip(
    training.plan.names, training.replicas[0].trainable, expected, strict=False
  ):
    # A gradient element is a sum of at most 8 * 64 products, added in another
    # order: each sum of m float32 terms is good to m * 2**-24 of the sum of
    # magnitudes, here below 4 for every element; three steps of rate 0.05,
    # doubled since both sides round.
    bound = 2 * count * rate * 512 * 2.0**-24 * 4
    np.testing.assert_allclose(
      variable.numpy(), value, rtol=2.0**-20, atol=bound, err_msg=name
    )


@pytest.mark.usefixtures('eager_functions')
def test_l2_terms_are_in_the_gradient():
  # With no data gradient (rate of change only by L2) a kernel shrinks by
  # rate * weight decay a step: L2(0.01) is 0.02 * w.
  training = small.at_its_start(
    small.dense_net, devices=1, workers=1, codec='identity', optimizer=DESCENT
  )
  kernel = training.replicas[0].trainable[0]
  before = kernel.numpy()
  zeros = tf.zeros([1, 8, small.SIZE, small.SIZE, 1])
  training.step.take(
    zeros,
    tf.zeros([1, 8], tf.int32),
    tf.constant(0, tf.int64),
    tf.constant(0.5),
    tf.constant(0.5),
  )
  # Images of zeros give the first kernel a data gradient of exactly zero.
  np.testing.assert_allclose(kernel.numpy(), before * 0.99, rtol=1e-6)


@pytest.mark.usefixtures('eager_functions')
def test_the_optimizer_runs_once_a_step_whatever_the_number_of_nodes():
  # B3: Adam's powers advanced once a tower. With equal examples on all nodes
  # any number of them takes the very step of one.
  results = []
  for workers in (1, 4):
    training = small.Training(
      small.dense_net,
      devices=1,
      workers=workers,
      codec='identity',
      optimizer=optimizers.Adam(),
    )
    images, labels = small.batch_of(0, [1, 2])
    for number in range(3):
      training.step.take(
        tf.repeat(images, workers, axis=0),
        tf.repeat(labels, workers, axis=0),
        tf.constant(number, tf.int64),
        tf.constant(0.01),
        tf.constant(0.5),
      )
    results.append(training.values())
  np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
  'devices', [1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_the_graph_does_not_grow_with_the_nodes(devices):
  def operations(workers):
    training = small.Training(
      small.conv_net,
      devices=devices,
      workers=workers,
      batch=64,
      on_kernels=True,
    )
    concrete = training.step.take.get_concrete_function(
      *small.batch_of(0, training.shape),
      tf.constant(0, tf.int64),
      tf.constant(0.1),
      tf.constant(0.5),
    )
    graph = concrete.graph.as_graph_def()
    return sum(len(f.node_def) for f in graph.library.function) + len(
      graph.node
    )

  assert operations(64) == operations(4)


@pytest.mark.usefixtures('eager_functions')
def test_batch_norm_moves_once_a_step_by_the_mean_over_the_workers():
  training = small.at_its_start(
    small.conv_net, devices=2, workers=4, codec='identity'
  )
  names = training.plan.names[len(training.plan.trainable) :]
  index = names.index('bn/moving_mean')
  images, _ = small.batch_of(0, training.shape)
  kernel, bias = (v.numpy() for v in training.replicas[0].trainable[:2])
  moments = [
    tf.reduce_mean(tf.nn.conv2d(part, kernel, 1, 'VALID') + bias, [0, 1, 2])
    for part in images
  ]
  training.run(1)
  # Keras's default momentum is 0.99 and the mean starts at 0.
  np.testing.assert_allclose(
    training.replicas[1].statistics[index].numpy(),
    0.01 * np.mean(moments, axis=0),
    rtol=1e-4,
    atol=1e-7,
  )


def test_dropout_depends_on_step_and_worker():
  training = small.Training(dropout_net, devices=1, workers=2)
  parameters = [tf.convert_to_tensor(v) for v in training.replicas[0].trainable]
  statistics = [
    tf.convert_to_tensor(v) for v in training.replicas[0].statistics
  ]
  images, labels = small.batch_of(0, [4])

  def gradient(step, worker):
    key = random_bits.worker_key(1, tf.constant(step, tf.int64), worker)
    result, _, _ = training.node_pass.gradients(
      parameters, statistics, images, labels, key
    )
    return result[-2].numpy()

  np.testing.assert_array_equal(gradient(0, 0), gradient(0, 0))
  assert (gradient(0, 0) != gradient(0, 1)).any()
  assert (gradient(0, 0) != gradient(1, 0)).any()


@pytest.mark.usefixtures('eager_functions')
def test_averages_follow_the_values_after_the_update():
  # B6: the 2017 code left the order open.
  training = small.at_its_start(
    small.dense_net, devices=1, workers=1, codec='identity', optimizer=DESCENT
  )
  replica = training.replicas[0]
  before = replica.averages[0].numpy()
  training.run(1)
  expected = 0.5 * before + 0.5 * replica.trainable[0].numpy()
  np.testing.assert_allclose(replica.averages[0].numpy(), expected, rtol=1e-6)


def test_sent_words_equal_the_bits_of_the_codec():
  training = small.at_its_start(
    small.dense_net, devices=2, workers=4, on_kernels=True
  )
  result = training.run(1)
  words = sum(int(tf.size(part)) for (part,) in result.words)
  assert words == int(tf.reduce_sum(result.sent))
  sent = 32 * (words + int(tf.size(result.probes))) / 4
  assert sent == training.codec.bits(4)


@pytest.mark.usefixtures('eager_functions')
def test_logged_bits_are_the_mean_over_the_workers():
  training = small.Training(
    small.dense_net,
    devices=1,
    workers=4,
    codec='threshold:above=0.01,capacity=0.9',
    on_kernels=True,
  )
  gauge = meter.Meter(schedules.Epochs(100, 8), last={})
  result = training.run(1)
  gauge.add(result)
  # The first word is the number of sent elements: an index and a value each.
  words = [tensor.numpy() for tensor in result.payloads(0)]
  used = [1 + 2 * int(w[0]) for w in words]
  np.testing.assert_array_equal(result.sent, used)
  assert all(0 < n < w.size for n, w in zip(used, words, strict=True))
  logged = gauge.values(training.codec.num_elements, 0.1, 0.0)
  bits = 32 * (sum(used) / 4 + 4)  # four variables, a scaler each
  assert logged['bits_per_element'] == bits / training.codec.num_elements


def test_the_probe_of_a_gradient_that_is_not_finite_is_not_finite():
  training = small.at_its_start(
    small.dense_net, devices=2, workers=4, on_kernels=True
  )
  images, labels = small.batch_of(0, training.shape)
  spoilt = tf.tensor_scatter_nd_update(
    images, [[2, 0, 0, 0, 0]], [float('nan')]
  )
  result = training.step.take(
    spoilt,
    labels,
    tf.constant(0, tf.int64),
    tf.constant(0.1),
    tf.constant(0.5),
  )
  finite = np.isfinite(result.probes.numpy())
  assert finite[[0, 1, 3]].all()
  assert not finite[2].all()


def one_update(build, count=1, rate=0.5, **options):
  """(parameters before, parameters after, training) of float32 steps."""
  training = small.at_its_start(
    build, devices=1, workers=2, codec='identity', **options
  )
  before = [v.numpy() for v in training.replicas[0].trainable]
  training.run(count, rate=rate)
  after = [v.numpy() for v in training.replicas[0].trainable]
  return before, after, training


@pytest.mark.usefixtures('eager_functions')
def test_an_update_is_at_most_the_norm_times_the_rate():
  _, plain, _ = one_update(small.dense_net, optimizer=DESCENT)
  before, after, _ = one_update(
    small.dense_net, optimizer=DESCENT.with_clip_norm(0.01)
  )
  moved = [a - b for a, b in zip(after, before, strict=True)]
  free = [a - b for a, b in zip(plain, before, strict=True)]
  norm, free_norm = (
    np.sqrt(sum(np.sum(np.square(part)) for part in parts))
    for parts in (moved, free)
  )
  np.testing.assert_allclose(norm, 0.5 * 0.01, rtol=1e-4)
  for part, whole in zip(moved, free, strict=True):
    np.testing.assert_allclose(
      part, whole * (norm / free_norm), rtol=1e-3, atol=1e-7
    )


@pytest.mark.usefixtures('eager_functions')
def test_decoupled_decay_is_the_l2_terms_of_plain_descent():
  # w - rate * (g + d) both ways, rounded in another order.
  _, coupled, _ = one_update(small.dense_net, optimizer=DESCENT)
  _, decoupled, _ = one_update(
    small.dense_net, optimizer=DESCENT, decoupled=True
  )
  for first, second in zip(coupled, decoupled, strict=True):
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures('eager_in_gate')
@pytest.mark.parametrize(
  'name',
  [
    'adam',
    *(pytest.param(n, marks=pytest.mark.slow) for n in ('momentum', 'rmsprop')),
  ],
)
def test_decoupled_decay_does_not_pass_through_the_optimizer(name):
  # With no data gradient only the decay moves a kernel: by rate * 0.02 * w,
  # whatever the optimizer, and its slots stay what they were.
  training = small.Training(
    small.dense_net,
    devices=1,
    workers=1,
    codec='identity',
    optimizer=optimizers.OPTIMIZERS[name](0.9),
    decoupled=True,
  )
  replica = training.replicas[0]
  before = replica.trainable[0].numpy()
  slots = {k: v.numpy() for k, v in replica.slots[0].items()}
  zeros = tf.zeros([1, 8, small.SIZE, small.SIZE, 1])
  for number in range(2):
    training.take(number, zeros, tf.zeros([1, 8], tf.int32), rate=0.5)
  np.testing.assert_allclose(
    replica.trainable[0].numpy(), before * 0.99**2, rtol=1e-6
  )
  slots.pop('mean_square', None)  # falls towards 0 without a gradient
  for slot, value in slots.items():
    np.testing.assert_array_equal(replica.slots[0][slot].numpy(), value)


def test_layouts_are_bit_identical_with_all_options():
  options = {
    'optimizer': optimizers.Adam().with_clip_norm(0.05),
    'loss': passes.Loss(label_smoothing=0.1),
    'decoupled': True,
    'parts': 2,
    'scaling': loss_scaling.START,
    'codec': 'ternary',
    'on_kernels': True,
  }
  reference = trained(dropout_net, 1, 4, count=2, **options)
  towers = trained(dropout_net, 2, 4, count=2, **options)
  np.testing.assert_array_equal(towers.values(), reference.values())
  assert_replicas_equal(towers)


@pytest.mark.slow
def test_only_local_statistics_differ_between_devices():
  training = trained(
    small.conv_net, 2, 4, count=1, codec='identity', local_statistics=True
  )
  averaged = small.at_its_start(
    small.conv_net, devices=2, workers=4, codec='identity'
  )
  averaged.run(1)
  names = replicas.variable_names(training.plan, training.replicas[0])
  differing = {
    name
    for name, one, two in zip(
      names, *(r.variables() for r in training.replicas), strict=True
    )
    if (one.numpy() != two.numpy()).any()
  }
  assert differing == {
    'bn/moving_mean',
    'bn/moving_variance',
    'bn/moving_mean/average',
    'bn/moving_variance/average',
  }
  replicas.check_equal(training.replicas, names)
  # The mean over the devices is what all would have had.
  mean = np.mean([r.statistics[0].numpy() for r in training.replicas], axis=0)
  np.testing.assert_allclose(
    mean, averaged.replicas[0].statistics[0].numpy(), rtol=1e-5, atol=1e-7
  )


@pytest.mark.usefixtures('eager_in_gate')
@pytest.mark.parametrize(
  'devices', [pytest.param(1, marks=pytest.mark.slow), 2]
)
def test_frozen_parameters_are_neither_sent_nor_changed(devices):
  training = small.Training(
    small.conv_net,
    devices=devices,
    workers=2,
    codec='identity',
    trained=lambda name: name.startswith('logits/'),
  )
  frozen = ('conv/kernel', 'conv/bias', 'bn/gamma', 'bn/beta')
  replica = training.replicas[-1]
  assert tuple(training.plan.names[-4:]) == frozen
  before = [v.numpy() for v in replica.frozen]
  first = replica.trainable[0].numpy()
  training.run(2)
  for variable, value in zip(replica.frozen, before, strict=True):
    np.testing.assert_array_equal(variable.numpy(), value)
  assert (replica.trainable[0].numpy() != first).any()
  # 6 * 6 * 6 inputs and a bias for each of 5 classes.
  assert training.codec.num_elements == 5 * (6 * 6 * 6 + 1)
  assert_replicas_equal(training)
  # What normalises moves on, as in TF-Slim.
  assert float(tf.reduce_sum(tf.abs(replica.statistics[0]))) > 0


def two_headed_net(seed=3):
  """An auxiliary head beside the logits."""
  images = keras.Input((small.SIZE, small.SIZE, 1))
  x = keras.layers.Flatten()(images)

  def head(name):
    start = keras.initializers.GlorotUniform(seed=seed)
    return keras.layers.Dense(5, kernel_initializer=start, name=name)(x)

  return keras.Model(images, [head('logits'), head('aux_logits')])


@pytest.mark.usefixtures('eager_functions')
def test_an_auxiliary_head_learns_with_its_weight():
  # Both heads begin equal, so that their gradients differ by the weight alone.
  before, after, training = one_update(
    two_headed_net,
    rate=0.5,
    optimizer=DESCENT,
    loss=passes.Loss(aux_weight=0.25),
  )
  names = list(training.plan.names)
  main, aux = (
    after[index] - before[index]
    for index in (
      names.index('logits/kernel'),
      names.index('aux_logits/kernel'),
    )
  )
  assert np.abs(main).max() > 0.01
  np.testing.assert_allclose(aux, 0.25 * main, rtol=1e-3, atol=1e-6)
