import keras

from slim.nets import cifarnet
from tests.slim.nets import outlines


def test_differs_from_cifar10_alexnet_in_its_layers():
  model = cifarnet.build(10)
  assert model.count_params() == 1_756_426
  assert outlines.kernels(model) == {
    'conv1': (5, 5, 3, 64),
    'conv2': (5, 5, 64, 64),
    'fc3': (8 * 8 * 64, 384),
    'fc4': (384, 192),
    'logits': (192, 10),
  }
  assert outlines.names(model) == (
    ['images', 'conv1', 'pool1', 'norm1', 'conv2', 'norm2', 'pool2']
    + ['flatten', 'fc3', 'dropout3', 'fc4', 'logits']
  )
  for name in ('norm1', 'norm2'):
    assert model.get_layer(name).numbers == {
      'depth_radius': 4,
      'bias': 1.0,
      'alpha': 0.001 / 9,
      'beta': 0.75,
    }


def test_begins_as_tf_slim_s():
  model = cifarnet.build(10)
  found = {
    name: (
      model.get_layer(name).kernel_initializer.stddev,
      float(model.get_layer(name).bias.numpy()[0]),
    )
    for name in outlines.kernels(model)
  }
  tenth = 0.10000000149011612  # float32's
  assert found == {
    'conv1': (0.05, 0.0),
    'conv2': (0.05, 0.0),
    'fc3': (0.04, tenth),
    'fc4': (0.04, tenth),
    'logits': (1 / 192, 0.0),
  }
  for name in found:
    initializer = model.get_layer(name).kernel_initializer
    assert isinstance(initializer, keras.initializers.TruncatedNormal)
