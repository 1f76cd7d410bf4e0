import keras
import numpy as np
import pytest

from slim.nets import lenet

KERNEL_STDDEV = {'conv1': 0.05, 'conv2': 0.05, 'fc3': 0.048, 'logits': 0.0767}


def kernels(model):
  return {name: model.get_layer(name).kernel.numpy() for name in KERNEL_STDDEV}


def test_has_the_2017_net_s_parameters_layer_by_layer():
  model = lenet.build(10)
  assert model.count_params() == 1_256_080
  shapes = {
    layer.name: tuple(layer.kernel.shape)
    for layer in model.layers
    if layer.weights
  }
  assert shapes == {
    'conv1': (5, 5, 1, 20),
    'conv2': (5, 5, 20, 50),
    'fc3': (7 * 7 * 50, 500),
    'logits': (500, 10),
  }


@pytest.mark.parametrize(
  ('image_size', 'channels', 'num_classes'),
  [(28, 1, 10), (29, 3, 2), (1, 1, 1)],
)
def test_logits_are_one_float32_per_class(image_size, channels, num_classes):
  model = lenet.build(num_classes, image_size=image_size, channels=channels)
  images = np.zeros([3, image_size, image_size, channels], np.float32)
  logits = model(images)
  assert logits.shape == (3, num_classes)
  assert keras.backend.standardize_dtype(logits.dtype) == 'float32'


def test_logits_are_not_squashed():
  model = lenet.build(10)
  images = np.random.default_rng(0).normal(0, 10, [4, 28, 28, 1])
  logits = model(images).numpy()
  assert logits.min() < 0 and abs(logits.sum(1) - 1).min() > 1e-3


def test_hidden_layers_are_relu():
  model = lenet.build(10)
  for name in ('conv1', 'conv2', 'fc3'):
    assert model.get_layer(name).activation is keras.activations.relu


def test_equal_seeds_give_equal_weights():
  first, second = lenet.build(10, seed=7), lenet.build(10, seed=7)
  for one, other in zip(first.weights, second.weights, strict=True):
    np.testing.assert_array_equal(one, other)


def test_other_seeds_give_other_kernels():
  first, second = kernels(lenet.build(10, seed=1)), kernels(lenet.build(10))
  np.testing.assert_array_equal(first['fc3'], second['fc3'])  # 1 is the default
  third = kernels(lenet.build(10, seed=2))
  assert all(np.any(first[name] != third[name]) for name in first)


def test_kernels_are_drawn_with_their_offsets_of_the_seed():
  model = lenet.build(10, seed=40)
  for name, offset in {'conv1': 1, 'conv2': 2, 'fc3': 3, 'logits': 5}.items():
    kernel = model.get_layer(name).kernel
    expected = keras.initializers.TruncatedNormal(
      stddev=KERNEL_STDDEV[name], seed=40 + offset
    )(kernel.shape)
    np.testing.assert_array_equal(kernel, expected)


@pytest.mark.parametrize('name', KERNEL_STDDEV)
def test_kernels_are_cut_at_two_standard_deviations(name):
  kernel = kernels(lenet.build(10))[name]
  assert np.abs(kernel).max() <= 2 * KERNEL_STDDEV[name]
  # A normal cut at two deviations keeps 0.88 of its deviation. The smallest
  # kernel has 500 elements, hence a standard error below 1 / sqrt(2 * 500).
  assert kernel.std() / KERNEL_STDDEV[name] == pytest.approx(0.88, abs=0.095)


def test_biases_begin_at_zero():
  model = lenet.build(10)
  for name in KERNEL_STDDEV:
    assert not np.any(model.get_layer(name).bias.numpy())


def test_weight_decay_is_half_the_sum_of_squares_of_kernels_only():
  model = lenet.build(10, weight_decay=0.25)
  for name in KERNEL_STDDEV:
    model.get_layer(name).bias.assign_add(model.get_layer(name).bias + 3.0)
  expected = sum(
    0.25 * np.sum(kernel.astype(np.float64) ** 2) / 2
    for kernel in kernels(model).values()
  )
  assert float(sum(model.losses)) == pytest.approx(expected, rel=1e-5)


def test_weight_decay_zero_adds_no_losses():
  assert lenet.build(10, weight_decay=0).losses == []


def test_tf_slim_s_is_wider_and_has_a_dropout():
  model = lenet.build_slim(10)
  assert model.count_params() == 3_274_634
  assert [layer.name for layer in model.layers[1:]] == (
    ['conv1', 'pool1', 'conv2', 'pool2', 'flatten', 'fc3', 'dropout3']
    + ['logits']
  )
  shapes = {
    layer.name: tuple(layer.kernel.shape)
    for layer in model.layers
    if hasattr(layer, 'kernel')
  }
  assert shapes == {
    'conv1': (5, 5, 1, 32),
    'conv2': (5, 5, 32, 64),
    'fc3': (7 * 7 * 64, 1024),
    'logits': (1024, 10),
  }
  for name in shapes:
    assert model.get_layer(name).kernel_initializer.stddev == 0.1


def test_tf_slim_s_weights_are_equal_for_equal_seeds_only():
  first, same, other = (lenet.build_slim(10, seed=s) for s in (3, 3, 4))
  for one, two in zip(first.weights, same.weights, strict=True):
    np.testing.assert_array_equal(one, two)
  assert np.any(
    first.get_layer('fc3').kernel.numpy()
    != other.get_layer('fc3').kernel.numpy()
  )
