from slim.nets import alexnet
from slim.nets import alexnet_v2
from slim.nets import overfeat
from tests.slim.nets import outlines


def begins(model):
  """Layer to (deviation or None, bias) of what it begins with."""
  found = {}
  for layer in model.layers:
    if hasattr(layer, 'kernel'):
      initializer = layer.kernel_initializer
      stddev = getattr(initializer, 'stddev', None)
      bias = layer.bias_initializer.value if layer.use_bias else None
      found[layer.name] = (stddev, bias)
  return found


def pairs(layer, shape):
  return {f'{layer}_1': shape, f'{layer}_2': shape}


def test_alexnet_has_the_kernels_of_2017_in_the_order_of_its_seeds():
  model = outlines.outline(alexnet.build, num_classes=1001)
  assert list(outlines.kernels(model).items()) == list(
    {
      **pairs('conv1', (11, 11, 3, 48)),
      **pairs('conv2', (5, 5, 48, 128)),
      # Here, and only here, a column sees both.
      **pairs('conv3', (3, 3, 256, 192)),
      **pairs('conv4', (3, 3, 192, 192)),
      **pairs('conv5', (3, 3, 192, 128)),
      'fc6': (9216, 4096),
      'fc7': (4096, 4096),
      'logits': (4096, 1001),
    }.items()
  )
  seeds = [
    model.get_layer(name).kernel_initializer.seed
    for name in outlines.kernels(model)
  ]
  assert seeds == list(range(2, 15))


def test_alexnet_begins_as_in_2017():
  model = outlines.outline(alexnet.build, num_classes=7)
  columns = [f'conv{i}_{j}' for i in range(1, 6) for j in (1, 2)]
  assert begins(model) == {
    **{name: (0.01, None) for name in columns},
    'fc6': (0.005, 0.1),
    'fc7': (0.005, 0.1),
    'logits': (0.01, 0.0),
  }


def test_b23_alexnet_s_convolutions_are_normalized_though_the_paper_s_are_not():
  # Its figures are not those of plain AlexNet.
  model = outlines.outline(alexnet.build, num_classes=7)
  betas = [v for v in model.trainable_variables if v.path.endswith('beta')]
  assert outlines.size(betas) == 1376


def test_alexnet_normalizes_responses_after_the_relu_and_pools_last():
  model = outlines.outline(alexnet.build, num_classes=7)
  names = outlines.names(model)
  indices = [
    names.index(f'{name}_1{end}')
    for name, end in [
      ('conv1', ''),
      ('conv1', '_bn'),
      ('conv1', '_act'),
      ('lrn1', ''),
      ('pool1', ''),
      ('conv2', ''),
      ('conv2', '_act'),
      ('lrn2', ''),
      ('pool2', ''),
      ('conv3', ''),
    ]
  ]
  assert indices == sorted(indices)
  numbers = {'depth_radius': 2, 'bias': 2.0, 'alpha': 1e-4, 'beta': 0.75}
  for name in ('lrn1_1', 'lrn1_2', 'lrn2_1', 'lrn2_2'):
    assert model.get_layer(name).numbers == numbers
  sizes = [model.get_layer(f'pool{i}_2').output.shape[1] for i in (1, 2, 5)]
  assert sizes == [27, 13, 6]


def test_alexnet_v2_has_the_kernels_of_2017_and_begins_as_there():
  model = outlines.outline(alexnet_v2.build, num_classes=1001)
  assert list(outlines.kernels(model).items()) == list(
    {
      'conv1': (11, 11, 3, 64),
      'conv2': (5, 5, 64, 192),
      'conv3': (3, 3, 192, 384),
      'conv4': (3, 3, 384, 384),
      'conv5': (3, 3, 384, 256),
      'fc6': (5, 5, 256, 4096),
      'fc7': (1, 1, 4096, 4096),
      'logits': (1, 1, 4096, 1001),
    }.items()
  )
  assert begins(model) == {
    **{f'conv{i}': (None, 0.1) for i in range(1, 6)},
    'fc6': (0.005, 0.1),
    'fc7': (0.005, 0.1),
    'logits': (0.005, 0.0),
  }
  sizes = [model.get_layer(f'pool{i}').output.shape[1] for i in (1, 2, 5)]
  assert sizes == [26, 12, 5]


def test_overfeat_has_the_kernels_of_tf_slim_and_begins_as_there():
  model = outlines.outline(overfeat.build, num_classes=1000)
  assert list(outlines.kernels(model).items()) == list(
    {
      'conv1': (11, 11, 3, 64),
      'conv2': (5, 5, 64, 256),
      'conv3': (3, 3, 256, 512),
      'conv4': (3, 3, 512, 1024),
      'conv5': (3, 3, 1024, 1024),
      'fc6': (6, 6, 1024, 3072),
      'fc7': (1, 1, 3072, 4096),
      'logits': (1, 1, 4096, 1000),
    }.items()
  )
  assert begins(model) == {
    **{f'conv{i}': (None, 0.0) for i in range(1, 6)},
    'fc6': (0.005, 0.1),
    'fc7': (0.005, 0.1),
    'logits': (0.005, 0.0),
  }
