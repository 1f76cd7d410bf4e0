import keras
import numpy as np
import pytest

from slim.nets import cifar10_alexnet

STDDEV = {
  'conv1': 0.05,
  'conv2': 0.05,
  'fc3': 0.04,
  'fc4': 0.04,
  'logits': 1 / 192,
}
BIAS = {'conv1': 0.0, 'conv2': 0.1, 'fc3': 0.1, 'fc4': 0.1, 'logits': 0.0}


def test_has_the_2017_net_s_parameters_layer_by_layer():
  model = cifar10_alexnet.build(10)
  assert model.count_params() == 1_068_298
  shapes = {
    layer.name: tuple(layer.kernel.shape)
    for layer in model.layers
    if layer.weights
  }
  assert shapes == {
    'conv1': (5, 5, 3, 64),
    'conv2': (5, 5, 64, 64),
    'fc3': (6 * 6 * 64, 384),
    'fc4': (384, 192),
    'logits': (192, 10),
  }


@pytest.mark.parametrize(
  ('image_size', 'channels', 'num_classes'),
  [(24, 3, 10), (32, 1, 2), (1, 1, 1)],
)
def test_logits_are_one_float32_per_class(image_size, channels, num_classes):
  model = cifar10_alexnet.build(
    num_classes, image_size=image_size, channels=channels
  )
  logits = model(np.zeros([3, image_size, image_size, channels], np.float32))
  assert logits.shape == (3, num_classes)
  assert keras.backend.standardize_dtype(logits.dtype) == 'float32'


def test_layers_start_as_in_2017():
  model = cifar10_alexnet.build(10, seed=40)
  for offset, (name, stddev) in enumerate(STDDEV.items(), start=1):
    layer = model.get_layer(name)
    expected = keras.initializers.TruncatedNormal(
      stddev=stddev, seed=40 + offset
    )(layer.kernel.shape)
    np.testing.assert_array_equal(layer.kernel, expected)
    np.testing.assert_array_equal(
      layer.bias, np.full(layer.bias.shape, BIAS[name], np.float32)
    )


def test_only_the_hidden_dense_kernels_decay():
  model = cifar10_alexnet.build(10, weight_decay=0.004)
  squares = sum(
    np.sum(np.square(model.get_layer(name).kernel, dtype=np.float64))
    for name in ('fc3', 'fc4')
  )
  np.testing.assert_allclose(
    float(sum(model.losses)), 0.002 * squares, rtol=1e-5
  )
  assert cifar10_alexnet.build(10, weight_decay=0.0).losses == []


def test_normalization_divides_by_the_near_channels_squares():
  model = cifar10_alexnet.build(10)
  layer = model.get_layer('lrn1')
  values = np.random.default_rng(0).normal(0, 30, [1, 2, 2, 64])
  squares = np.square(values)
  expected = np.empty_like(values)
  for channel in range(64):
    near = squares[..., max(0, channel - 4) : channel + 5].sum(-1)
    expected[..., channel] = (
      values[..., channel] / (1 + 0.001 / 9 * near) ** 0.75
    )
  np.testing.assert_allclose(
    layer(values.astype(np.float32)), expected, rtol=1e-4
  )


def test_order_of_pooling_and_normalization_is_that_of_the_tutorial():
  names = [layer.name for layer in cifar10_alexnet.build(10).layers]
  assert names == (
    ['conv1', 'pool1', 'lrn1', 'conv2', 'lrn2', 'pool2', 'flatten']
    + ['fc3', 'fc4', 'logits']
  )


def test_model_is_rebuilt_from_its_configuration():
  model = cifar10_alexnet.build(10)
  again = keras.Sequential.from_config(model.get_config())
  again.set_weights(model.get_weights())
  images = np.random.default_rng(0).normal(size=[2, 24, 24, 3])
  images = images.astype(np.float32)
  np.testing.assert_array_equal(again(images), model(images))
