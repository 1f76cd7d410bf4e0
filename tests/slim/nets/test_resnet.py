import keras
import numpy as np
import pytest

from slim.nets import resnet
from tests.slim.nets import outlines

APPLICATIONS = {
  (1, 50): keras.applications.ResNet50,
  (1, 101): keras.applications.ResNet101,
  (1, 152): keras.applications.ResNet152,
  (2, 50): keras.applications.ResNet50V2,
  (2, 101): keras.applications.ResNet101V2,
  (2, 152): keras.applications.ResNet152V2,
}


def net(version, depth=50, **options):
  return outlines.outline(
    resnet.build, version=version, depth=depth, num_classes=5, **options
  )


@pytest.mark.parametrize(
  ('version', 'depth'),
  [
    case if case[1] == 50 else pytest.param(*case, marks=pytest.mark.slow)
    for case in APPLICATIONS
  ],
)
def test_kernels_are_those_of_keras_applications(version, depth):
  other = outlines.outline(
    APPLICATIONS[version, depth], weights=None, include_top=False
  )
  model = net(version, depth)
  kernels = list(outlines.kernels(model).values())
  assert sorted(kernels[:-1]) == sorted(
    tuple(x.kernel.shape) for x in other.layers if hasattr(x, 'kernel')
  )


@pytest.mark.parametrize('version', [1, 2])
def test_the_last_unit_of_a_block_halves_the_image(version):
  model = net(version)
  sizes = {
    name: tuple(model.get_layer(f'{name}_sum').output.shape[1:])
    for name in outlines.names(model)
    for name in [name.removesuffix('_sum')]
    if f'{name}_sum' in outlines.names(model)
  }
  expected = {}
  size = 56
  for block, units in enumerate((3, 4, 6, 3), start=1):
    for i in range(1, units + 1):
      if i == units and block < 4:
        size //= 2
      expected[f'block{block}_unit_{i}'] = (size, size, 128 * 2**block)
  assert sizes == expected


def test_strides_are_in_the_3x3_layer():
  model = net(1)
  last = 'block1_unit_3'
  strides = {i: model.get_layer(f'{last}_conv{i}').strides for i in (1, 2, 3)}
  assert strides == {1: (1, 1), 2: (2, 2), 3: (1, 1)}


def test_v1_normalizes_every_convolution_and_has_no_bias():
  model = net(1)
  for name in outlines.kernels(model):
    assert model.get_layer(name).use_bias == (name == 'logits')
    assert (f'{name}_bn' in outlines.names(model)) == (name != 'logits')


def test_v2_has_a_bias_where_no_normalization_follows():
  model = net(2)
  for name in outlines.kernels(model):
    plain = name == 'conv1' or name.endswith(('_conv3', 'shortcut', 'logits'))
    assert model.get_layer(name).use_bias == plain
    assert (f'{name}_bn' in outlines.names(model)) == (not plain)
  assert 'postnorm_bn' in outlines.names(model)


@pytest.mark.slow
def test_v2_computes_what_keras_applications_s_does():
  # Of an odd size after the first layer, for which both pad alike.
  other = keras.applications.ResNet50V2(
    include_top=False, weights=None, input_shape=(33, 33, 3), pooling='avg'
  )
  model = resnet.build(2, 50, num_classes=3, image_size=33)
  names = {'conv1_conv': 'conv1', 'post_bn': 'postnorm_bn'}
  parts = {
    'preact_bn': 'preact_bn',
    '0_conv': 'shortcut',
    '1_conv': 'conv1',
    '1_bn': 'conv1_bn',
    '2_conv': 'conv2',
    '2_bn': 'conv2_bn',
    '3_conv': 'conv3',
  }
  for block, units in enumerate(resnet.UNITS[50], start=1):
    for unit in range(1, units + 1):
      for theirs, ours in parts.items():
        name = f'conv{block + 1}_block{unit}_{theirs}'
        names[name] = f'block{block}_unit_{unit}_{ours}'
  rng = np.random.default_rng(0)
  copied = 0
  for layer in other.layers:
    if not layer.weights:
      continue
    if isinstance(layer, keras.layers.BatchNormalization):
      layer.set_weights([rng.uniform(0.5, 1.5, w.shape) for w in layer.weights])
    if layer.name == 'conv1_conv':
      # Above zero, with which they pad before they pool, and we do not.
      kernel, bias = layer.get_weights()
      layer.set_weights([kernel, bias + 9])
    model.get_layer(names[layer.name]).set_weights(layer.get_weights())
    copied += 1
  assert copied == sum(1 for layer in model.layers if layer.weights) - 1
  features = keras.Model(model.inputs[0], model.get_layer('pool5').output)
  images = rng.uniform(-1, 1, [2, 33, 33, 3]).astype(np.float32)
  expected = other(images).numpy()
  np.testing.assert_allclose(
    features(images), expected, atol=1e-4 * np.abs(expected).max()
  )


def test_every_convolution_may_have_a_bias():
  plain, biased = net(1), net(1, bias=True)
  filters = [shape[-1] for shape in outlines.kernels(plain).values()][:-1]
  assert biased.count_params() == plain.count_params() + sum(filters)


def test_the_first_convolution_and_the_last_pooling_are_configurable():
  model = net(1, image_size=64, first_kernel=3, first_stride=1, last_pool=3)
  assert outlines.kernels(model)['conv1'] == (3, 3, 3, 64)
  assert model.get_layer('conv1').output.shape[1:] == (64, 64, 64)
  # 4 x 4 is left of 64 x 64, in which 2 x 2 windows of 3 x 3 fit.
  assert outlines.kernels(model)['logits'] == (2 * 2 * 2048, 5)


@pytest.mark.parametrize(
  ('options', 'match'),
  [
    ({'first_kernel': 0}, 'first_kernel and first_stride >= 1'),
    ({'last_pool': 8}, 'last_pool from 0 to 7'),
    ({'last_pool': -1}, 'last_pool from 0 to 7'),
  ],
)
def test_invalid_kernels_and_poolings_are_refused(options, match):
  with pytest.raises(ValueError, match=match):
    net(1, **options)
