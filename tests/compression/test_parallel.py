"""`terngrad.parallelize`: a user's model on several devices, by functions."""

import functools
import json
import resource
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import terngrad
from terngrad import errors
from terngrad.cluster import devices as devices_lib
from terngrad.compression import device_inputs
from terngrad.passes import compiling
from tests import eager
from tests import seeming_gpu
from tests.compression import small_inputs
from tests.exchange import processes
from tests.keras import small as arrays
from tests.step import small

ONE, TWICE, TWO = ['/CPU:0'], ['/CPU:0', '/CPU:0'], ['/CPU:0', '/CPU:1']
RATE = 0.05


def made(build=small.dense_net, devices=TWO, **options):
  options = {'learning_rate': RATE} | options
  return terngrad.parallelize(
    options.pop('input_fn', small_inputs.of_device),
    build,
    devices=devices,
    **options,
  )


def dropping_net():
  return small.conv_net(dropout=0.5)


def of_trainer(build, workers, codec, steps):
  """Parameters after steps of `terngrad.Trainer`, virtual workers of one."""
  model = build()
  trainer = terngrad.Trainer(
    model, codec, num_workers=workers, optimizer='nesterov:momentum=0.9'
  )
  inputs = [small_inputs.of_device(i, workers) for i in range(workers)]
  for batches in list(zip(*inputs, strict=True))[:steps]:
    images, labels = zip(*batches, strict=True)
    trainer.step(tf.stack(images), tf.stack(labels), RATE)
  return [v.numpy() for v in (*model.trainable_variables, *model.weights)]


def assert_equal(ours, others):
  assert ours.keys() == others.keys()
  for name, value in ours.items():
    np.testing.assert_array_equal(value, others[name], err_msg=name)


@functools.cache
def trained_of_two_devices(codec):
  """(`dropping_net` after three steps, the result of the last)."""
  parallel = made(dropping_net, TWO, codec=codec)
  return parallel, parallel.run(3)


@pytest.mark.parametrize('codec', ['identity', 'ternary'])
@pytest.mark.gate_every(2)
def test_devices_are_bit_identical_to_virtual_workers(codec):
  expected = of_trainer(dropping_net, 2, codec, 3)
  twice = made(dropping_net, TWICE, codec=codec)
  twice.run(3)
  for parallel in (twice, trained_of_two_devices(codec)[0]):
    model = parallel.model
    found = [v.numpy() for v in (*model.trainable_variables, *model.weights)]
    for here, there in zip(found, expected, strict=True):
      np.testing.assert_array_equal(here, there)
    assert_equal(parallel.params(0), parallel.params(1))
    assert_equal(parallel.statistics(0), parallel.statistics(1))
    parallel.check_equal()


def test_outputs_of_a_device_are_those_of_its_replica():
  parallel = made()
  images, _ = small_inputs.of_device(0, 2)[0]
  parallel.replicas[1].trainable[0].assign_add(
    tf.ones_like(parallel.replicas[1].trainable[0])
  )
  first, second = (parallel.forward(i, images) for i in range(2))
  assert first.device.endswith('CPU:0') and second.device.endswith('CPU:1')
  np.testing.assert_array_equal(first, parallel.predict(images))
  assert not np.array_equal(first, second)


def test_recomputed_activations_give_the_same_bits():
  stored, result = trained_of_two_devices('identity')
  again = made(dropping_net, codec='identity', optimize_gradient_memory=True)
  assert again.run(3).loss == result.loss
  for device in range(2):
    assert_equal(stored.params(device), again.params(device))
    assert_equal(stored.statistics(device), again.statistics(device))


def test_a_model_that_cannot_be_recomputed_is_refused():
  with pytest.raises(ValueError, match='optimize_gradient_memory: expected'):
    made(one_layer, optimize_gradient_memory=True)


def one_layer():
  return keras.Sequential(
    [keras.Input((small.SIZE, small.SIZE, 1)), keras.layers.Flatten()]
    + [keras.layers.Dense(5)]
  )


@pytest.mark.usefixtures('eager_functions')
def test_the_seed_decides_the_codes():
  def kernels(seed):
    parallel = made(devices=ONE, codec='ternary:clip_factor=0', seed=seed)
    parallel.run(1)
    model = small.dense_net()
    trainer = terngrad.Trainer(model, 'ternary:clip_factor=0', seed=seed)
    images, labels = small_inputs.of_device(0, 1)[0]
    trainer.step(images[None], labels[None], RATE)
    of_trainer = model.get_layer('logits').kernel.numpy()
    return parallel.params(0)['logits/kernel'], of_trainer

  first, again, other = map(kernels, (1, 1, 2))
  for one, same, different in zip(first, again, other, strict=True):
    np.testing.assert_array_equal(one, same)
    assert np.any(one != different)


def branch(name, trainable):
  """A submodel; Keras gives its layers the same paths in every submodel."""
  features = keras.Input((6,))
  dense = keras.layers.Dense(3, name='dense')(features)
  outputs = keras.layers.BatchNormalization(name='norm', momentum=0.5)(dense)
  made_branch = keras.Model(features, outputs, name=name)
  made_branch.trainable = trainable
  return made_branch


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize('trainable', [False, True])
def test_submodels_with_equal_paths_keep_their_own_variables(trainable):
  def build():
    keras.utils.set_random_seed(1)
    features = keras.Input((6,))
    both = [branch(name, trainable)(features) for name in 'ab']
    joined = keras.layers.Concatenate()(both)
    return keras.Model(features, keras.layers.Dense(2, name='logits')(joined))

  model = build()
  images = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
  labels = np.arange(8, dtype=np.int32) % 2
  parallel = made(
    lambda: model,
    ONE,
    input_fn=lambda *_: [(images, labels)],
    codec='identity',
    optimizer='gd',
  )
  np.testing.assert_allclose(
    parallel.predict(images), model(images), rtol=1e-5, atol=1e-6
  )
  parallel.run(1)
  stock = build()
  stock.compile(
    keras.optimizers.SGD(RATE),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  stock.train_on_batch(images, labels)
  for here, there in zip(model.weights, stock.weights, strict=True):
    np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-6)
  assert len(parallel.params(0)) + len(parallel.statistics(0)) == len(
    model.weights
  )


def test_variables_with_constraints_are_refused():
  def build():
    limit = keras.constraints.NonNeg()
    dense = keras.layers.Dense(2, name='logits', kernel_constraint=limit)
    return keras.Sequential([keras.Input((4,)), dense])

  with pytest.raises(ValueError, match='logits/kernel: expected .*NonNeg'):
    made(build)
  with pytest.raises(ValueError, match='logits/kernel: expected .*NonNeg'):
    terngrad.Trainer(build(), 'identity')


def test_layers_that_add_losses_are_not_recomputed():
  def build():
    image = keras.layers.Input([8, 8, 1])
    features = keras.layers.Flatten()(image)
    for _ in range(4):
      dense = keras.layers.Dense(16, activity_regularizer='l2')
      features = dense(features)
    return keras.Model(image, keras.layers.Dense(4)(features))

  with pytest.raises(errors.ConfigError, match='layers that add no losses'):
    made(build, optimize_gradient_memory=True).run(1)


@pytest.mark.usefixtures('eager_functions')
def test_a_layer_may_have_integers_that_are_not_trained():
  """`Normalization` counts its examples."""

  def build():
    scaled = keras.layers.Normalization()
    scaled.adapt(np.arange(6.0).reshape(6, 1))
    dense = small.dense_net()
    image = keras.layers.Input(dense.inputs[0].shape[1:])
    return keras.Model(image, dense(scaled(image)))

  for devices in (ONE, TWO):
    parallel = made(build, devices)
    parallel.run(1)
    parallel.check_equal()


def test_one_device_is_bit_identical_to_one_worker():
  parallel = made(devices=[0], codec='ternary')
  parallel.run(2)
  expected = of_trainer(small.dense_net, 1, 'ternary', 2)
  found = parallel.model.trainable_variables
  for variable, value in zip(found, expected, strict=False):
    np.testing.assert_array_equal(variable.numpy(), value)


@pytest.mark.usefixtures('eager_functions')
def test_two_devices_take_the_step_of_one_with_all_examples():
  two, one = made(), made(devices=ONE, input_fn=small_inputs.of_two)
  ours, others = two.run(2), one.run(2)
  assert ours.num_examples == others.num_examples == 2 * 2 * small_inputs.SIZE
  np.testing.assert_allclose(ours.loss, others.loss, rtol=1e-5)
  assert ours.accuracy == others.accuracy
  for name, value in two.params(0).items():
    # Sums of float32 in another order.
    np.testing.assert_allclose(value, one.params(0)[name], atol=1e-6)


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize('sizes', [(2, 1, 1), (3, 1)])
@pytest.mark.gate_every(2)
def test_devices_with_unequal_batches_take_the_step_of_the_whole_batch(sizes):
  def split(index, count):
    # The last batch is smaller, as the last of a data set is.
    begin = sum(sizes[:index])
    images, labels = small_inputs.of_device(0, 1)[0]
    local = slice(begin, begin + sizes[index])
    last = slice(index, index + 1)
    return [(images[local], labels[local]), (images[last], labels[last])]

  def whole(index, count):
    images, labels = small_inputs.of_device(0, 1)[0]
    return [(images, labels), (images[: len(sizes)], labels[: len(sizes)])]

  several = made(devices=['/CPU:0'] * len(sizes), input_fn=split)
  one = made(devices=ONE, input_fn=whole)
  for _ in range(3):
    ours, others = several.step(), one.step()
    assert ours.num_examples == others.num_examples
    np.testing.assert_allclose(ours.loss, others.loss, rtol=1e-5)
    np.testing.assert_allclose(ours.accuracy, others.accuracy, rtol=1e-6)
  several.check_equal()
  for name, value in several.params(0).items():
    # Sums of float32 in another order.
    np.testing.assert_allclose(value, one.params(0)[name], atol=1e-6)


def of_group(**options):
  """Two workers of two devices each, whose names repeat."""
  return made(devices=[*TWO, *TWO], devices_per_worker=2, **options)


@pytest.mark.slow
def test_devices_of_a_worker_send_one_message():
  ours, others = of_group(), made(devices=[*TWO, *TWO])
  first, second = ours.run(2), others.run(2)
  assert first.num_examples == second.num_examples
  assert ours.num_devices == 4 and len(ours.replicas) == 4
  # Bits of a worker; there are half as many.
  assert first.bits_per_element == second.bits_per_element
  np.testing.assert_allclose(first.loss, second.loss, rtol=1e-5)
  ours.check_equal()
  for name, value in ours.params(3).items():
    # Sums of float32 in another order.
    np.testing.assert_allclose(value, others.params(0)[name], atol=1e-6)
  assert ours.evaluate(small_inputs.of_device).num_examples == 48


@pytest.mark.usefixtures('eager_functions')
def test_devices_of_a_worker_may_have_unequal_batches():
  sizes = (2, 1)

  def split(index, count):
    images, labels = small_inputs.of_device(0, 1)[0]
    begin = sum(sizes[:index])
    rows = slice(begin, begin + sizes[index])
    return [(images[rows], labels[rows])]

  def whole(index, count):
    images, labels = small_inputs.of_device(0, 1)[0]
    return [(images[:3], labels[:3])]

  ours = made(devices=TWO, devices_per_worker=2, input_fn=split)
  others = made(devices=ONE, input_fn=whole)
  assert ours.run(2).num_examples == others.run(2).num_examples
  ours.check_equal()
  for name, value in ours.params(1).items():
    np.testing.assert_allclose(value, others.params(0)[name], atol=1e-6)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'devices_per_worker': 3}, 'a divisor of the 2 devices .*, received 3'),
    ({'devices_per_worker': 0}, 'a divisor of the 2 devices .*, received 0'),
    (
      {'devices_per_worker': 2, 'broadcast_computed_params': False},
      'expected True with devices_per_worker=2, received False',
    ),
  ],
)
def test_groups_that_do_not_fit_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    made(**options)


@pytest.mark.usefixtures('eager_functions')
def test_a_result_is_measured_before_the_update():
  parallel = made(codec='ternary')
  reports = []
  for step in range(2):
    images, labels = map(
      np.concatenate,
      zip(*(small_inputs.of_device(i, 2)[step] for i in (0, 1)), strict=True),
    )
    logits = parallel.predict(images)
    parallel.run(1, lambda *arguments: reports.append(arguments))
    steps, result = reports[-1]
    assert steps == parallel.steps == step + 1
    assert result.num_examples == len(labels)
    assert result.accuracy == np.mean(logits.argmax(axis=1) == labels)
    # 1.6 bits, and some words of small variables.
    assert 1.6 < result.bits_per_element < 2.5


class TestForwardOnly:
  @pytest.mark.usefixtures('eager_functions')
  def test_it_scores_all_examples_once_and_trains_nothing(self):
    # Another number of batches a device, the last one smaller; one has none.
    images, labels = small_inputs.of_all(2)
    shares = [(0, 10), (10, 24), (24, 24)]

    def input_fn(index, count):
      assert count == 3
      part = slice(*shares[index])
      data = tf.data.Dataset.from_tensor_slices((images[part], labels[part]))
      return data.batch(4)

    parallel = made(
      dropping_net, [*TWO, '/CPU:2'], optimizer=None, input_fn=input_fn
    )
    before = parallel.params(1)
    score = parallel.test()
    logits = parallel.model(images, training=False).numpy()
    np.testing.assert_allclose(logits, parallel.predict(images), atol=1e-6)
    assert score.num_examples == len(labels) == 24
    assert score.accuracy == np.mean(logits.argmax(axis=1) == labels)
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    entropy = np.mean(log_sums - shifted[np.arange(24), labels])
    np.testing.assert_allclose(score.loss, entropy, rtol=1e-5)
    assert parallel.test() == score
    assert_equal(parallel.params(1), before)
    assert parallel.codec is None
    for replica in parallel.replicas:
      assert not any(replica.slots) and not replica.averages

  def test_a_step_is_refused(self):
    parallel = made(devices=ONE, optimizer=None)
    with pytest.raises(ValueError, match='received one with optimizer=None'):
      parallel.run(1)

  def test_it_scores_the_current_weights(self):
    training = made()
    testing = made(lambda: training.model, optimizer=None)
    first = testing.test()
    # Programs that score are traced, with the weights of that time.
    with eager.functions():
      training.run(3)
    assert testing.test() == training.test() != first


class TestScoringOfTrainingInputs:
  @pytest.mark.usefixtures('eager_functions')
  def test_training_continues_with_its_next_batch(self):
    plain, scored = (made(codec='identity') for _ in range(2))
    plain.run(3)
    for _ in range(3):
      scored.run(1)
      assert scored.test().num_examples == 2 * 3 * small_inputs.SIZE
    assert_equal(scored.params(0), plain.params(0))

  def test_processes_keep_the_sizes_of_their_batches(self):
    # One process of a group, whose rows are those of the group.
    group = types.SimpleNamespace(all_gather_now=lambda rows: rows)
    exchange = types.SimpleNamespace(
      first=0, num_local_workers=1, num_workers=1, group=group
    )
    inputs = device_inputs.DeviceInputs(
      small_inputs.of_device, exchange, tf.TensorSpec(None)
    )
    for _ in range(2):
      assert len(list(inputs.iterate_once())) == small_inputs.STEPS
      assert inputs.next()[2] == small_inputs.SIZE

  def test_an_iterator_that_training_needs_is_refused(self):
    iterator = iter(small_inputs.of_device(0, 1))
    parallel = made(devices=ONE, input_fn=lambda index, count: iterator)
    with pytest.raises(ValueError, match='that can be read again.*evaluate'):
      parallel.test()
    assert parallel.run(3).num_examples == 3 * small_inputs.SIZE


class TestLoss:
  @pytest.mark.usefixtures('eager_functions')
  def test_it_is_minimized(self):
    def loss_fn(outputs, labels):
      return tf.reduce_mean(tf.square(outputs - tf.one_hot(labels, 5)))

    model = keras.Sequential(
      [
        keras.Input((8, 8, 1)),
        keras.layers.Flatten(),
        keras.layers.Dense(5, name='logits'),
      ]
    )
    images, labels = small_inputs.of_device(0, 1)[0]
    flat = images.numpy().reshape(len(images), -1)
    kernel, bias = (w.numpy() for w in model.weights)
    errors_of = flat @ kernel + bias - np.eye(5)[labels]
    parallel = made(lambda: model, ONE, loss=loss_fn, optimizer='gd')
    result = parallel.step()
    np.testing.assert_allclose(result.loss, np.mean(errors_of**2), rtol=1e-5)
    expected = kernel - RATE * flat.T @ errors_of * 2 / errors_of.size
    found = parallel.params(0)['logits/kernel']
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)

  def test_a_loss_may_have_conditions_on_tensors(self):
    def loss_fn(outputs, labels):
      loss = tf.reduce_mean(tf.square(outputs))
      if loss > 0.0:
        loss = loss / loss + 2.0
      return loss

    parallel = made(devices=ONE, loss=loss_fn, optimizer='gd')
    assert parallel.step().loss == 3.0

  def test_a_loss_of_each_example_is_refused(self):
    parallel = made(devices=ONE, loss=lambda outputs, labels: outputs[:, 0])
    with pytest.raises(ValueError, match=r'shape \[4\]. Take tf.reduce_mean'):
      parallel.step()

  @pytest.mark.usefixtures('eager_functions')
  def test_an_infinite_loss_stops_training(self):
    parallel = made(
      devices=ONE,
      loss=lambda outputs, labels: tf.reduce_mean(outputs) / 0.0,
    )
    with pytest.raises(
      errors.TrainingError, match=r'gradient of devices \[0\]'
    ):
      parallel.step()


def test_a_learning_rate_may_be_a_function_of_the_steps_taken():
  seen = []

  def rate(step):
    seen.append(step)
    return 0.0 if step else RATE

  parallel = made(devices=ONE, learning_rate=rate, optimizer='gd')
  start = parallel.params(0)
  parallel.step()
  first = parallel.params(0)
  parallel.run(2)
  assert seen == [0, 1, 2]
  assert_equal(parallel.params(0), first)
  assert np.any(start['fc/kernel'] != first['fc/kernel'])


@pytest.mark.parametrize(
  'options',
  [
    {'learning_rate': float('nan')},
    {'learning_rate': float('inf')},
    {'learning_rate': -0.1},
    {'local_steps': 2, 'outer_learning_rate': float('nan')},
  ],
  ids=str,
)
def test_a_learning_rate_that_is_no_finite_number_is_refused(options):
  with pytest.raises(ValueError, match='learning_rate: expected a finite num'):
    made(devices=ONE, **options)


@pytest.mark.usefixtures('eager_functions')
def test_a_schedule_without_a_finite_number_consumes_no_batch():
  rates = iter([float('nan'), 0.1])
  parallel = made(devices=ONE, learning_rate=lambda step: next(rates))
  other = made(devices=ONE, learning_rate=0.1)
  with pytest.raises(ValueError, match='a schedule must return such a number'):
    parallel.step()
  assert parallel.step() == other.step()
  assert_equal(parallel.params(0), other.params(0))


@pytest.mark.usefixtures('eager_functions')
def test_devices_can_have_local_statistics():
  parallel = made(small.conv_net, broadcast_computed_params=False)
  parallel.run(2)
  assert_equal(parallel.params(0), parallel.params(1))
  first, second = parallel.statistics(0), parallel.statistics(1)
  assert sorted(first) == ['bn/moving_mean', 'bn/moving_variance']
  for name, value in first.items():
    assert np.all(value != second[name])
  parallel.check_equal()
  averaged = made(small.conv_net)
  averaged.run(2)
  # Each step takes the same share of the devices' own moments.
  np.testing.assert_allclose(
    averaged.statistics(0)['bn/moving_mean'],
    (first['bn/moving_mean'] + second['bn/moving_mean']) / 2,
    atol=0.01,
  )


@pytest.mark.usefixtures('eager_functions')
def test_frozen_layers_do_not_change_and_are_not_sent():
  model = small.conv_net()
  model.get_layer('conv').trainable = False
  parallel = made(lambda: model)
  before = parallel.params(1)
  assert 'conv/kernel' in before
  assert 'conv/kernel' not in parallel.statistics(1)
  parallel.run(2)
  after = parallel.params(1)
  for name in ('conv/kernel', 'conv/bias'):
    np.testing.assert_array_equal(after[name], before[name])
  assert np.any(after['logits/kernel'] != before['logits/kernel'])


class TestInputs:
  def refused(self, input_fn, match, build=small.dense_net, devices=TWO):
    parallel = made(build, devices, input_fn=input_fn)
    with pytest.raises(ValueError, match=match):
      parallel.step()

  def test_the_same_object_for_two_devices_is_refused(self):
    batches = small_inputs.of_device(0, 1)
    data = tf.data.Dataset.from_tensors(batches[0])
    for source in (batches, data):
      with pytest.raises(ValueError, match='same object as input_fn of device'):
        made(input_fn=lambda index, count, source=source: source)

  def test_equal_first_batches_are_refused(self):
    def same(index, count):
      return small_inputs.of_device(0, 2)

    self.refused(same, 'device 1: .* bit-identical to that of device 0')
    training = made()
    with pytest.raises(
      ValueError, match='device 1: .* bit-identical to that of device 0'
    ):
      training.evaluate(same)

  @pytest.mark.usefixtures('eager_functions')
  def test_devices_take_turns_at_one_reader(self):
    images, labels = small_inputs.of_all(2)
    pairs = np.split(images, 6), np.split(labels, 6)
    reader = zip(*pairs, strict=True)
    shared = made(input_fn=lambda index, count: reader, codec='ternary')
    separate = made(
      input_fn=lambda index, count: [*zip(*pairs, strict=True)][index::count],
      codec='ternary',
    )
    assert shared.run(3) == separate.run(3)
    with pytest.raises(ValueError, match='another batch, received the end'):
      shared.step()

  @pytest.mark.usefixtures('eager_functions')
  def test_an_input_at_its_end_starts_again(self):
    asked = []

    class Batches:
      def __init__(self, index, count):
        self._batches = small_inputs.of_device(index, count)
        self._index = index

      def __iter__(self):
        asked.append(self._index)
        return iter(self._batches)

    made(input_fn=Batches).run(4)
    assert asked == [0, 1, 0, 1]

  @pytest.mark.usefixtures('eager_functions')
  def test_byte_images_train_like_float_images(self):
    def input_fn(dtype):
      def of_device(index, count):
        images, labels = small_inputs.of_device(index, count)[0]
        return [
          ((8 * images.numpy() + 99).astype(np.uint8).astype(dtype), labels)
        ]

      return of_device

    ours, others = (
      made(input_fn=input_fn(dtype), devices=ONE).step().loss
      for dtype in (np.uint8, np.float64)
    )
    assert ours == others

  def test_examples_of_other_shapes_are_refused(self):
    def input_fn(index, count):
      (images, labels), *_ = small_inputs.of_device(index, count)
      return [(images[:, : 4 + index], labels)]

    self.refused(
      input_fn,
      r'like those of input_fn of device 0, float32 \[4, 4, 8, 1\]',
      lambda: keras.Sequential(
        [
          keras.Input([None, 8, 1]),
          keras.layers.GlobalAveragePooling2D(),
          keras.layers.Dense(2, name='logits'),
        ]
      ),
    )

  @pytest.mark.parametrize(
    ('images', 'labels', 'match'),
    [
      ([4, 8, 1], [4], r'images \[b, 8, 8, 1\] .* float32 \[4, 8, 1\]'),
      ([4, 8, 8, 1], [4, 1], r'received float32 \[4, 8, 8, 1\] and int32'),
      ([4, 8, 8, 1], [3], 'integer labels'),
      ([0, 8, 8, 1], [0], 'b >= 1'),
    ],
  )
  def test_tensors_of_other_ranks_are_refused(self, images, labels, match):
    batch = np.ones(images, np.float32), np.ones(labels, np.int32)
    self.refused(lambda index, count: [batch], match, devices=ONE)

  @pytest.mark.parametrize(
    ('source', 'match'),
    [
      ([], 'expected another batch, received the end'),
      ([np.ones([4, 8, 8, 1])], 'Map the input to pairs'),
      ([(np.ones([4, 8, 8, 1]), np.ones([4]))], 'integer labels'),
    ],
    ids=['empty', 'images alone', 'labels that are no numbers of classes'],
  )
  def test_invalid_batches_are_refused(self, source, match):
    self.refused(lambda index, count: source, match, devices=ONE)

  def test_an_input_that_is_not_iterable_is_refused(self):
    with pytest.raises(ValueError, match='received NoneType. Return one'):
      made(input_fn=lambda index, count: None)

  def test_evaluation_needs_a_finite_nonempty_input(self):
    parallel = made(devices=ONE, optimizer=None)
    batch = small_inputs.of_device(0, 1)[0]
    endless = tf.data.Dataset.from_tensors(batch).repeat()
    with pytest.raises(ValueError, match='Leave .repeat'):
      parallel.evaluate(lambda index, count: endless)
    with pytest.raises(ValueError, match='at least one example, received none'):
      parallel.evaluate(lambda index, count: [])


@pytest.mark.parametrize(
  ('options', 'match'),
  [
    ({'devices': []}, 'devices: expected a list'),
    ({'devices': '/CPU:0'}, 'devices: expected a list'),
    ({'devices': [-1]}, 'devices: expected a list'),
    ({'devices': ['/TPU:0']}, 'devices: expected a list'),
    ({'devices': [0, 99]}, 'received /CPU:99, but there are 4'),
    ({'codec': 'ternry'}, 'Did you mean'),
    ({'optimizer': 'nestrov'}, 'Did you mean'),
    ({'build': lambda: None}, 'model_fn: expected a built keras.Model'),
    (
      {'build': lambda: keras.Sequential([keras.layers.Dense(2)])},
      'begins with keras.Input',
    ),
    ({'rendezvous': 'redis'}, 'rendezvous: expected None, a dict'),
    ({'rendezvous': {'clustr': 'mpi'}}, 'Did you mean'),
  ],
)
def test_invalid_options_are_refused(options, match):
  with pytest.raises(ValueError, match=match):
    made(**options)


def test_a_model_without_logits_is_refused():
  layers = [keras.Input((8, 8, 1)), keras.layers.Conv2D(2, 3)]
  parallel = made(lambda: keras.Sequential(layers), ONE)
  with pytest.raises(ValueError, match=r'logits \[b, classes\], received'):
    parallel.step()


def test_no_steps_are_refused():
  with pytest.raises(ValueError, match='num_steps: expected 1 or more'):
    made(devices=ONE).run(0)


@pytest.mark.usefixtures('eager_functions')
@arrays.ARRAYS_OF_KERAS
@pytest.mark.parametrize('ending', ['.weights.h5', '.keras'])
@pytest.mark.gate_every(2)
def test_one_replica_is_saved_if_all_are_equal(tmp_path, ending):
  path = tmp_path / f'saved{ending}'
  parallel = made(codec='ternary')
  parallel.run(2)
  parallel.save(path)

  def read():
    if ending == '.keras':
      return keras.models.load_model(path)
    model = small.dense_net(seed=77)
    model.load_weights(path)
    return model

  again = made(read, ONE, optimizer=None)
  assert_equal(again.params(0), parallel.params(0))
  path.unlink()
  parallel.replicas[1].trainable[0].assign_add(
    tf.ones_like(parallel.replicas[1].trainable[0])
  )
  with pytest.raises(errors.TrainingError, match='expected fc/kernel on'):
    parallel.save(path)
  assert not path.exists()
  with pytest.raises(ValueError, match="'.weights.h5' or '.keras'"):
    parallel.save(tmp_path / 'weights.npz')


@arrays.ARRAYS_OF_KERAS
@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize('averaged', [True, False])
def test_several_processes_equal_one_with_as_many_devices(tmp_path, averaged):
  script = processes.ROOT / 'tests/compression/parallel_process.py'
  with processes.Processes() as started:
    for rank, address in enumerate(processes.addresses(2)):
      rendezvous = {
        'cluster': 'rendezvous',
        'rendezvous_dir': str(tmp_path),
        'rendezvous_processes': 2,
        'task_id': rank,
        'own_address': address,
      }
      request = {'rendezvous': rendezvous, 'averaged': averaged}
      request |= {'folder': str(tmp_path)}
      started.start(script, json.dumps(request))
    for ended in started.wait():
      assert ended.code == 0, ended.log
  parallel = made(
    small.conv_net,
    codec='ternary',
    learning_rate=0.1,
    broadcast_computed_params=averaged,
  )
  result = parallel.run(3)
  score = parallel.evaluate(small_inputs.of_device)
  for rank in (0, 1):
    found = dict(np.load(tmp_path / f'{rank}.npz'))
    assert (found.pop('loss'), found.pop('examples')) == (
      np.float64(result.loss),
      result.num_examples,
    )
    np.testing.assert_allclose(found.pop('score'), score)
    assert_equal({**parallel.params(rank), **parallel.statistics(rank)}, found)
  model = small.conv_net(seed=77)
  model.load_weights(tmp_path / 'saved.weights.h5')
  for ours, others in zip(parallel.model.weights, model.weights, strict=True):
    np.testing.assert_array_equal(ours.numpy(), others.numpy())


@pytest.mark.slow
@pytest.mark.cluster
def test_a_process_that_never_comes_is_named_after_start_timeout(tmp_path):
  hosts = processes.addresses(2)
  rendezvous = {
    'worker_hosts': ','.join(hosts),
    'task_id': 0,
    'start_timeout': 5,
  }
  request = {'rendezvous': rendezvous, 'averaged': True}
  script = processes.ROOT / 'tests/compression/parallel_process.py'
  with processes.Processes() as started:
    started.start(script, json.dumps(request | {'folder': str(tmp_path)}))
    (ended,) = started.wait()
  assert ended.code == 1, ended.log
  assert f'no answer from worker 1 ({hosts[1]})' in ended.log


def is_compiled(parallel):
  """Whether the pass of a model is compiled."""
  node_pass = parallel._step._training.node_pass
  return isinstance(node_pass, compiling.CompiledPass)


def test_a_single_gpu_compiles_passes_as_keras_does(monkeypatch):
  assert not is_compiled(made(devices=ONE))
  seeming_gpu.pretend(monkeypatch)
  monkeypatch.setattr(devices_lib, 'grow_memory', list)
  compiled, plain = made(devices=ONE), made(devices=ONE, jit_compile=False)
  assert is_compiled(compiled) and not is_compiled(plain)
  np.testing.assert_allclose(compiled.run(2).loss, plain.run(2).loss, rtol=1e-5)
  assert not is_compiled(made())


@pytest.mark.parametrize(
  'options',
  [
    {'jit_compile': 'yes'},
    {'jit_compile': True, 'optimize_gradient_memory': True},
  ],
)
def test_passes_that_cannot_be_compiled_are_refused(options):
  with pytest.raises(ValueError, match="jit_compile: expected 'auto' or False"):
    made(dropping_net, ONE, **options)


@arrays.ARRAYS_OF_KERAS
def test_a_full_disk_leaves_the_saved_file(tmp_path):
  path = tmp_path / 'saved.keras'
  parallel = made(devices=ONE)
  parallel.save(path)
  before = path.read_bytes()
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
  try:
    with pytest.raises(errors.TrainingError, match='Free some space'):
      parallel.save(path)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert path.read_bytes() == before
  assert [*tmp_path.iterdir()] == [path]


@pytest.mark.usefixtures('eager_functions')
@pytest.mark.parametrize(
  ('codec', 'options'),
  [
    ('identity', {}),
    ('ternary', {}),
    ('ternary', {'optimize_gradient_memory': True}),
    (
      'ternary',
      {
        'optimize_gradient_memory': True,
        'local_steps': 2,
        'inner_optimizer': 'adamw',
      },
    ),
  ],
)
def test_rows_of_an_embedding_train(codec, options):
  words = np.array([[0, 1], [1, 3]], np.int32)

  def net():
    return keras.Sequential(
      [
        keras.Input([2], dtype='int32'),
        keras.layers.Embedding(4, 3, name='words'),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(9, activation='relu'),
        keras.layers.Dense(9, activation='relu'),
        keras.layers.Dense(2, name='logits'),
      ]
    )

  parallel = terngrad.parallelize(
    lambda *_: [(words, np.array([0, 1]))],
    net,
    devices=ONE,
    codec=codec,
    **options,
  )
  before = parallel.params(0)
  parallel.step()
  changed = {
    name: (value != before[name]).any(axis=-1)
    for name, value in parallel.params(0).items()
  }
  # Row 2 is not among the words.
  (rows,) = (value for value in changed.values() if value.shape == (4,))
  assert not rows[2]
  assert codec == 'ternary' or rows.tolist() == [True, True, False, True]


def test_labels_beyond_int32_are_refused():
  images, labels = next(iter(small_inputs.of_device(0, 1)))
  far = tf.cast(labels, tf.int64) + 2**32
  with pytest.raises(ValueError, match='expected labels below 2'):
    made(devices=ONE, input_fn=lambda *_: [(images, far)]).step()


@pytest.mark.parametrize('option', ['codec', 'codec_rules'])
def test_unknown_codes_are_refused_without_an_optimizer(option):
  with pytest.raises(ValueError, match='nonsense'):
    made(devices=ONE, optimizer=None, **{option: 'a=nonsense'})
