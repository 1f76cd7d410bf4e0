import keras
import pytest

from slim.nets import vgg
from tests.slim.nets import outlines


def convolutions(model):
  return [
    shape
    for name, shape in outlines.kernels(model).items()
    if name.startswith('conv')
  ]


@pytest.mark.parametrize('name', ['vgg_16', 'vgg_19'])
def test_convolutions_are_keras_applications_s(name):
  theirs = {
    'vgg_16': keras.applications.VGG16,
    'vgg_19': keras.applications.VGG19,
  }[name]
  other = outlines.outline(theirs, weights=None, include_top=False)
  expected = [
    tuple(layer.kernel.shape)
    for layer in other.layers
    if hasattr(layer, 'kernel')
  ]
  for build in (vgg.build, vgg.build_slim):
    model = outlines.outline(build, name=name, num_classes=3)
    assert convolutions(model) == expected


def test_vgg_a_is_the_papers_net_of_eight_convolutions():
  model = outlines.outline(vgg.build, name='vgg_a', num_classes=3)
  assert [shape[2:] for shape in convolutions(model)] == [
    (3, 64),
    (64, 128),
    (128, 256),
    (256, 256),
    (256, 512),
    *[(512, 512)] * 3,
  ]


@pytest.mark.parametrize('name', ['vgg_a', 'vgg_16'])
def test_of_2017_convolutions_are_normalized_and_dense_layers_are_dense(name):
  model = outlines.outline(vgg.build, name=name, num_classes=1001)
  kernels = outlines.kernels(model)
  assert kernels['fc6'] == (7 * 7 * 512, 4096)
  assert kernels['logits'] == (4096, 1001)
  for layer in kernels:
    assert (f'{layer}_bn' in outlines.names(model)) == layer.startswith('conv')
    assert model.get_layer(layer).use_bias != layer.startswith('conv')
  seeds = [model.get_layer(x).kernel_initializer.seed for x in kernels]
  assert seeds == list(range(2, 2 + len(kernels)))


def test_tf_slim_s_has_no_normalization_and_only_convolutions():
  model = outlines.outline(vgg.build_slim, name='vgg_16', num_classes=1001)
  kernels = outlines.kernels(model)
  assert kernels['fc6'] == (7, 7, 512, 4096)
  assert kernels['logits'] == (1, 1, 4096, 1001)
  assert not any(name.endswith('_bn') for name in outlines.names(model))
  assert all(model.get_layer(layer).use_bias for layer in kernels)


@pytest.mark.parametrize('build', [vgg.build, vgg.build_slim])
def test_kernels_begin_as_xavier(build):
  model = outlines.outline(build, name='vgg_a', num_classes=3)
  for layer in outlines.kernels(model):
    initializer = model.get_layer(layer).kernel_initializer
    assert isinstance(initializer, keras.initializers.GlorotUniform)


@pytest.mark.parametrize(('image_size', 'positions'), [(224, 1), (300, 3)])
def test_tf_slim_s_averages_logits_over_positions_of_larger_images(
  image_size, positions
):
  model = outlines.outline(
    vgg.build_slim, name='vgg_a', num_classes=3, image_size=image_size
  )
  shape = model.get_layer('logits').output.shape
  assert tuple(shape) == (None, positions, positions, 3)
