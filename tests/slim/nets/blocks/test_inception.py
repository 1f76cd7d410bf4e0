import re

import keras
import numpy as np
import pytest

from slim.nets import inception_resnet_v2
from slim.nets import inception_v1
from slim.nets import inception_v2
from slim.nets import inception_v3
from slim.nets import inception_v4
from slim.nets.blocks import inception
from slim.nets.blocks import layers
from tests.slim.nets import outlines


def stddevs(model):
  """Deviation of truncated normals, to the names of their layers."""
  found = {}
  for layer in model.layers:
    initializer = getattr(layer, 'kernel_initializer', None)
    if isinstance(initializer, keras.initializers.TruncatedNormal):
      found.setdefault(initializer.stddev, []).append(layer.name)
  return found


def shape_of(model, layer):
  return tuple(model.get_layer(layer).output.shape[1:])


def test_steps_of_a_block_are_named_by_position():
  make = layers.Layers(layers.Style(layers.xavier, 0.0), seed=1)
  images = keras.Input((9, 9, 4))
  conv = inception.Conv
  output = inception.mixed(
    make,
    images,
    'mixed',
    [
      [conv(2), conv(3, (1, 7)), conv(4, 3, 2)],
      [inception.HALVE],
      [inception.AVG, conv(5, 5, valid=True)],
      [conv(2, 3, 2), (conv(3, (1, 3)), conv(3, (3, 1)))],
    ],
  )
  model = keras.Model(images, output)
  assert output.shape[-1] == 4 + 4 + 5 + 6
  assert {
    name.removeprefix('mixed_branch_')
    for name in outlines.names(model)
    if re.search('branch_[0-9]_(conv2d|.*pool).*[0-9]$', name)
  } == {
    '0_conv2d_0a_1x1',
    '0_conv2d_0b_1x7',
    '0_conv2d_1a_3x3',
    '1_maxpool_1a_3x3',
    '2_avgpool_0a_3x3',
    '2_conv2d_1a_5x5',
    '3_conv2d_1a_3x3',
    '3_conv2d_0a_1x3',
    '3_conv2d_0b_3x1',
  }


def test_googlenet_has_the_channels_and_sizes_of_its_table():
  model = outlines.outline(inception_v1.build, num_classes=7)
  sizes = {
    'conv2d_1a_7x7': (112, 112, 64),
    'maxpool_2a_3x3': (56, 56, 64),
    'maxpool_3a_3x3': (28, 28, 192),
    'mixed_3b': (28, 28, 256),
    'mixed_3c': (28, 28, 480),
    'mixed_4b': (14, 14, 512),
    'mixed_4e': (14, 14, 528),
    'mixed_4f': (14, 14, 832),
    'maxpool_5a_2x2': (7, 7, 832),
    'mixed_5b': (7, 7, 832),
    'mixed_5c': (7, 7, 1024),
  }
  assert {name: shape_of(model, name) for name in sizes} == sizes
  kernels = outlines.kernels(model)
  assert kernels['mixed_3b_branch_2_conv2d_0b_3x3'] == (3, 3, 16, 32)
  assert len(kernels) == 3 + 9 * 6 + 1


def test_googlenet_begins_with_a_deviation_of_a_hundredth_but_its_logits():
  model = outlines.outline(inception_v1.build, num_classes=7)
  (found,) = stddevs(model).items()
  assert found[0] == 0.01 and len(found[1]) == 57
  logits = model.get_layer('logits').kernel_initializer
  assert isinstance(logits, keras.initializers.HeNormal)


@pytest.mark.slow
def test_b2_googlenet_s_seeds_make_replicas_equal():
  # In 2017 kernels were drawn without a seed, so that replicas began apart.
  first, second = (
    inception_v1.build(3, image_size=32, seed=5) for _ in range(2)
  )
  for one, same in zip(first.weights, second.weights, strict=True):
    np.testing.assert_array_equal(one, same)


def test_inception_v2_has_the_sizes_that_tf_slim_tests():
  model = outlines.outline(inception_v2.build, num_classes=7)
  sizes = {
    'conv2d_1a_7x7': (112, 112, 64),
    'maxpool_2a_3x3': (56, 56, 64),
    'conv2d_2c_3x3': (56, 56, 192),
    'mixed_3b': (28, 28, 256),
    'mixed_3c': (28, 28, 320),
    'mixed_4a': (14, 14, 576),
    'mixed_4e': (14, 14, 576),
    'mixed_5a': (7, 7, 1024),
    'mixed_5c': (7, 7, 1024),
  }
  assert {name: shape_of(model, name) for name in sizes} == sizes
  pools = [n for n in outlines.names(model) if n.startswith('mixed_5')]
  assert 'mixed_5b_branch_3_avgpool_0a_3x3' in pools
  assert 'mixed_5c_branch_3_maxpool_0a_3x3' in pools


def test_inception_v2_draws_1x1_kernels_with_other_deviations():
  found = stddevs(outlines.outline(inception_v2.build, num_classes=7))
  assert set(found) == {0.09, 0.1}
  assert set(found[0.1]) == {
    'conv2d_2b_1x1',
    *(
      f'mixed_{block}_branch_3_conv2d_0b_1x1'
      for block in ('3b', '3c', '4b', '4c', '4d', '4e', '5b', '5c')
    ),
  }
  assert len(found[0.09]) == 2 * 8 + 2 * 2


@pytest.mark.slow
@pytest.mark.parametrize(
  ('build', 'sizes'),
  [
    (
      inception_v3.build,
      {'mixed_5d': (35, 288), 'mixed_6e': (17, 768), 'mixed_7c': (8, 2048)},
    ),
    (
      inception_v4.build,
      {'mixed_5e': (35, 384), 'mixed_6h': (17, 1024), 'mixed_7d': (8, 1536)},
    ),
    (
      inception_resnet_v2.build,
      {
        'block35_10_sum': (35, 320),
        'block17_20_sum': (17, 1088),
        'block8_10_sum': (8, 2080),
      },
    ),
  ],
)
def test_nets_of_299_pixels_have_the_papers_sizes(build, sizes):
  model = outlines.outline(build, num_classes=7)
  for name, (size, channels) in sizes.items():
    assert shape_of(model, name) == (size, size, channels)
  assert outlines.kernels(model)['aux_conv2d_2a_5x5'] == (5, 5, 128, 768)


def test_inception_v3_begins_as_in_2017_and_tf_slim_s_as_there():
  old = stddevs(outlines.outline(inception_v3.build, num_classes=7))
  slim = stddevs(outlines.outline(inception_v3.build_slim, num_classes=7))
  assert slim == {0.01: ['aux_conv2d_2a_5x5'], 0.001: ['aux_logits']}
  assert sorted(old[0.01]) == ['aux_conv2d_2a_5x5', 'logits']
  assert old[0.001] == ['aux_logits']
  assert len(old[0.1]) == 94 + 1


def copied(model, other):
  """Gives `model` the weights of another in the order of their making."""
  rng = np.random.default_rng(0)

  def numbered(kind):
    layers = [x for x in other.layers if isinstance(x, kind)]
    number = re.compile('_([0-9]+)$')
    return sorted(layers, key=lambda x: int((number.findall(x.name) or [0])[0]))

  ours = [
    name
    for name in outlines.kernels(model)
    if name != 'logits' and not name.startswith('aux')
  ]
  convolutions = numbered(keras.layers.Conv2D)
  norms = numbered(keras.layers.BatchNormalization)
  for name, conv, norm in zip(ours, convolutions, norms, strict=True):
    model.get_layer(name).set_weights(conv.get_weights())
    norm.set_weights([rng.uniform(0.5, 1.5, w.shape) for w in norm.weights])
    model.get_layer(f'{name}_bn').set_weights(norm.get_weights())


@pytest.mark.slow
def test_inception_v3_computes_what_keras_applications_s_does():
  keras.utils.clear_session()  # Its layers are numbered from 0.
  other = keras.applications.InceptionV3(
    include_top=False, weights=None, input_shape=(107, 107, 3), pooling='avg'
  )
  model = inception_v3.build_slim(3, image_size=107)
  copied(model, other)
  features = keras.Model(
    model.inputs[0], model.get_layer('logits_avgpool').output
  )
  images = np.random.default_rng(1).uniform(-1, 1, [2, 107, 107, 3])
  images = images.astype(np.float32)
  expected = other(images).numpy()
  np.testing.assert_allclose(
    features(images), expected, atol=1e-4 * np.abs(expected).max()
  )


@pytest.mark.slow
def test_inception_resnet_v2_has_the_kernels_of_keras_applications_s():
  other = outlines.outline(
    keras.applications.InceptionResNetV2, weights=None, include_top=False
  )
  model = outlines.outline(inception_resnet_v2.build, num_classes=7)
  theirs = [x for x in other.layers if isinstance(x, keras.layers.Conv2D)]
  assert sorted(tuple(x.kernel.shape) for x in theirs) == sorted(
    shape
    for name, shape in outlines.kernels(model).items()
    if name != 'logits' and not name.startswith('aux')
  )
  biased = [x.name for x in model.layers if getattr(x, 'use_bias', False)]
  assert len(biased) == len([x for x in theirs if x.use_bias]) + 2 == 42
