import keras
import numpy as np
import pytest

from slim.nets.blocks import layers

BATCH_NORM = layers.BatchNorm(decay=0.9, epsilon=0.01)


def built(make, apply, size=8, channels=3):
  images = keras.Input((size, size, channels))
  return keras.Model(images, apply(make, images))


def style(**changes):
  return layers.Style(layers.truncated_normal(0.1), 0.5)._replace(**changes)


def test_kernels_take_the_next_seed_and_dropouts_do_not():
  make = layers.Layers(style(), seed=10)

  def net(make, x):
    x = make.conv(x, 'first', 2, 3)
    x = make.dropout(x, 'dropout', 0.5)
    x = make.conv(x, 'second', 2, 3)
    x = make.dropout(x, 'other', 0.5)
    return make.logits(x, 4)

  model = built(make, net)
  names = ('first', 'second', 'logits')
  seeds = [model.get_layer(n).kernel_initializer.seed for n in names]
  assert seeds == [11, 12, 13]
  assert model.get_layer('dropout').seed != model.get_layer('other').seed


def test_a_normalized_convolution_has_no_bias_and_is_activated_last():
  make = layers.Layers(style(batch_norm=BATCH_NORM), seed=1)
  model = built(make, lambda make, x: make.conv(x, 'conv', 2, 3))
  assert [layer.name for layer in model.layers[1:]] == (
    ['conv', 'conv_bn', 'conv_act']
  )
  assert not model.get_layer('conv').use_bias
  assert model.get_layer('conv').activation is keras.activations.linear
  norm = model.get_layer('conv_bn')
  assert (norm.momentum, norm.epsilon, norm.gamma) == (0.9, 0.01, None)
  assert model(np.ones([1, 8, 8, 3], np.float32)).numpy().min() >= 0


def test_a_plain_convolution_has_a_bias_and_is_activated_itself():
  make = layers.Layers(style(bias=0.25), seed=1)
  model = built(make, lambda make, x: make.conv(x, 'conv', 2, 3))
  (layer,) = model.layers[1:]
  assert layer.activation is keras.activations.relu
  np.testing.assert_array_equal(layer.bias, [0.25, 0.25])


def test_changes_apply_to_one_layer():
  make = layers.Layers(style(batch_norm=BATCH_NORM), seed=1)

  def net(make, x):
    x = make.conv(x, 'plain', 2, 3, batch_norm=None, bias_decay=True)
    return make.conv(x, 'usual', 2, 3)

  model = built(make, net)
  assert model.get_layer('plain').bias_regularizer is not None
  assert not model.get_layer('usual').use_bias
  assert [layer.name for layer in model.layers[1:]] == (
    ['plain', 'usual', 'usual_bn', 'usual_act']
  )


def test_logits_of_feature_maps_are_the_mean_over_positions():
  make = layers.Layers(style(bias=0.5), seed=1)
  model = built(make, lambda make, x: make.logits(x, 4), size=2)
  images = np.random.default_rng(0).normal(size=[3, 2, 2, 3])
  kernel = model.get_layer('logits').kernel.numpy()[0, 0]
  expected = images.mean((1, 2)) @ kernel + 0.5
  np.testing.assert_allclose(
    model(images.astype(np.float32)), expected, atol=1e-6
  )


@pytest.mark.parametrize('size', [8, 9])
def test_conv_same_begins_at_the_first_pixel_for_any_image_size(size):
  make = layers.Layers(style(activation=None), seed=1)
  model = built(
    make, lambda make, x: make.conv_same(x, 'conv', 1, 3, 2), size, 1
  )
  model.get_layer('conv').kernel.assign(np.eye(1, 9).reshape(3, 3, 1, 1))
  images = np.arange(size * size, dtype=np.float32).reshape(1, size, size, 1)
  # The kernel takes the pixel above and to the left of its middle, and the
  # first middle is the first pixel.
  expected = np.pad(images[0, :, :, 0], 1)[0:size:2, 0:size:2]
  np.testing.assert_array_equal(model(images)[0, :, :, 0], expected)


@pytest.mark.parametrize(
  ('initializer', 'variance'),
  [
    # Cut at two deviations a normal keeps 0.774 of its variance.
    (layers.truncated_normal(0.1), 0.01 * 0.774),
    (layers.variance_scaling, 2 / 900),
    (layers.xavier, 2 / (900 + 1800)),
  ],
)
def test_kernels_begin_with_their_variance(initializer, variance):
  # 162,000 elements: the error of a variance is below 2 / sqrt(162,000).
  kernel = initializer(3)((3, 3, 100, 200)).numpy()
  assert kernel.var() == pytest.approx(variance, rel=0.01)
