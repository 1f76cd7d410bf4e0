import keras
import numpy as np
import pytest

from slim.nets import small_resnet
from tests.slim.nets import outlines


def net(architecture, **options):
  return outlines.outline(
    small_resnet.build, architecture=architecture, num_classes=10, **options
  )


def layers_on_the_way(model):
  """Layers with a kernel, those of shortcuts left out."""
  return [n for n in outlines.kernels(model) if not n.endswith('_shortcut')]


def units(model):
  """{unit: shape of its sum}."""
  return {
    name.removesuffix('_sum'): tuple(model.get_layer(name).output.shape[1:])
    for name in outlines.names(model)
    if name.endswith('_sum')
  }


def test_eighteen_layers_are_those_of_the_book():
  model = net(small_resnet.RESNET_18, image_size=28, channels=1)
  assert len(layers_on_the_way(model)) == 18
  assert units(model) == {
    f'block{block}_unit_{i}': (size, size, 32 * 2**block)
    for block, size in enumerate((28, 14, 7, 4), start=1)
    for i in (1, 2)
  }
  # By the book: convolutions, a pair for each normalization, 1x1 shortcuts
  # with biases at the three changes of width, a dense layer.
  widths = [64, 64, 128, 256, 512]
  expected = 9 * 64 + 2 * 64 + 512 * 10 + 10
  for before, width in zip(widths, widths[1:], strict=False):
    expected += 9 * before * width + 3 * 9 * width * width + 4 * 2 * width
    expected += (before + 1) * width if before != width else 0
  assert outlines.parameters(model) == expected == 11_171_914
  initializer = model.get_layer('conv1').kernel_initializer
  assert isinstance(initializer, keras.initializers.RandomNormal)
  assert initializer.stddev == 0.01


@pytest.mark.parametrize(
  # The paper's table 6, in millions, with shortcuts that have no parameters.
  ('depth', 'millions'),
  [(20, 0.27), (32, 0.46), (56, 0.85)],
)
def test_nets_of_cifar_have_the_paper_s_layers_and_sizes(depth, millions):
  model = net(small_resnet.cifar_architecture(depth))
  assert len(layers_on_the_way(model)) == depth
  shapes = list(units(model).values())
  each = len(shapes) // 3
  assert shapes == [
    shape
    for shape in ((32, 32, 16), (16, 16, 32), (8, 8, 64))
    for _ in range(each)
  ]
  shortcuts = 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
  paper = outlines.parameters(model) - shortcuts
  assert paper / 1e6 == pytest.approx(millions, abs=0.01)


def test_a_unit_adds_its_input_and_is_rectified():
  """With convolutions of zeros a unit is the relu of its shortcut."""
  model = small_resnet.build(
    small_resnet.cifar_architecture(20), num_classes=3, image_size=8
  )
  for layer in model.layers:
    if layer.name.endswith(('_conv1', '_conv2')):
      layer.kernel.assign(np.zeros(layer.kernel.shape))
  names = ['conv1_act', 'block1_unit_3_act', 'block2_unit_1_act']
  inner_outputs = keras.Model(
    model.input,
    [model.get_layer(name).output for name in names]
    + [model.get_layer('block2_unit_1_shortcut_bn').output],
  )
  images = np.random.default_rng(0).normal(size=(2, 8, 8, 3))
  first, third, changed, shortcut = inner_outputs(images.astype(np.float32))
  np.testing.assert_array_equal(first, third)
  np.testing.assert_array_equal(changed, np.maximum(shortcut, 0))
