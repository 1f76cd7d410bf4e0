"""The names in published checkpoints of TensorFlow 1, as they list them.

TF-Slim's names are those in https://github.com/tensorflow/models,
research/slim/nets.
"""

# Scope and convolutions of TF-Slim's Inception v3, as it spells them.
_V3_STEM = (
  'Conv2d_1a_3x3',
  'Conv2d_2a_3x3',
  'Conv2d_2b_3x3',
  'Conv2d_3b_1x1',
  'Conv2d_4a_3x3',
)
_V3_5 = (
  ('Conv2d_0a_1x1',),
  ('Conv2d_0a_1x1', 'Conv2d_0b_5x5'),
  ('Conv2d_0a_1x1', 'Conv2d_0b_3x3', 'Conv2d_0c_3x3'),
  ('Conv2d_0b_1x1',),
)
_V3_6 = (
  ('Conv2d_0a_1x1',),
  ('Conv2d_0a_1x1', 'Conv2d_0b_1x7', 'Conv2d_0c_7x1'),
  (
    'Conv2d_0a_1x1',
    'Conv2d_0b_7x1',
    'Conv2d_0c_1x7',
    'Conv2d_0d_7x1',
    'Conv2d_0e_1x7',
  ),
  ('Conv2d_0b_1x1',),
)
_V3_7_ENDS = (
  ('Conv2d_0a_1x1', 'Conv2d_0b_3x3', 'Conv2d_0c_1x3', 'Conv2d_0d_3x1'),
  ('Conv2d_0b_1x1',),
)
SLIM_V3 = {
  'Mixed_5b': _V3_5,
  'Mixed_5c': (_V3_5[0], ('Conv2d_0b_1x1', 'Conv_1_0c_5x5'), *_V3_5[2:]),
  'Mixed_5d': _V3_5,
  'Mixed_6a': (
    ('Conv2d_1a_1x1',),
    ('Conv2d_0a_1x1', 'Conv2d_0b_3x3', 'Conv2d_1a_1x1'),
  ),
  **{f'Mixed_6{letter}': _V3_6 for letter in 'bcde'},
  'Mixed_7a': (
    ('Conv2d_0a_1x1', 'Conv2d_1a_3x3'),
    ('Conv2d_0a_1x1', 'Conv2d_0b_1x7', 'Conv2d_0c_7x1', 'Conv2d_1a_3x3'),
  ),
  'Mixed_7b': (
    ('Conv2d_0a_1x1',),
    ('Conv2d_0a_1x1', 'Conv2d_0b_1x3', 'Conv2d_0b_3x1'),
    *_V3_7_ENDS,
  ),
  'Mixed_7c': (
    ('Conv2d_0a_1x1',),
    ('Conv2d_0a_1x1', 'Conv2d_0b_1x3', 'Conv2d_0c_3x1'),
    *_V3_7_ENDS,
  ),
}
# Google's first Inception v3: the kernels of each branch, in order.
_ONE = ((1, 1),)
_OLD_35 = {
  'branch1x1': _ONE,
  'branch5x5': ((1, 1), (5, 5)),
  'branch3x3dbl': ((1, 1), (3, 3), (3, 3)),
  'branch_pool': _ONE,
}
_OLD_17 = {
  'branch1x1': _ONE,
  'branch7x7': ((1, 1), (1, 7), (7, 1)),
  'branch7x7dbl': ((1, 1), (7, 1), (1, 7), (7, 1), (1, 7)),
  'branch_pool': _ONE,
}
_OLD_8 = {
  'branch1x1': _ONE,
  'branch3x3': ((1, 1), (1, 3), (3, 1)),
  'branch3x3dbl': ((1, 1), (3, 3), (1, 3), (3, 1)),
  'branch_pool': _ONE,
}
OLD_V3 = {
  **dict.fromkeys(
    ('mixed_35x35x256a', 'mixed_35x35x288a', 'mixed_35x35x288b'), _OLD_35
  ),
  'mixed_17x17x768a': {
    'branch3x3': ((3, 3),),
    'branch3x3dbl': ((1, 1), (3, 3), (3, 3)),
  },
  **{f'mixed_17x17x768{letter}': _OLD_17 for letter in 'bcde'},
  'mixed_17x17x1280a': {
    'branch3x3': ((1, 1), (3, 3)),
    'branch7x7x3': ((1, 1), (1, 7), (7, 1), (3, 3)),
  },
  'mixed_8x8x2048a': _OLD_8,
  'mixed_8x8x2048b': _OLD_8,
}


def normalized(layers, scale=False):
  """Variables of convolutions with batch normalisation."""
  kinds = ('beta', 'moving_mean', 'moving_variance', *(['gamma'] * scale))
  for layer in layers:
    yield f'{layer}/weights'
    yield from (f'{layer}/BatchNorm/{kind}' for kind in kinds)


def plain(layers):
  """Variables of layers with biases."""
  for layer in layers:
    yield from (f'{layer}/weights', f'{layer}/biases')


def blocks(table):
  for block, branches in table.items():
    for number, layers in enumerate(branches):
      yield from (f'{block}/Branch_{number}/{layer}' for layer in layers)


def slim_inception_v3():
  layers = [*_V3_STEM, *blocks(SLIM_V3)]
  layers += ['AuxLogits/Conv2d_1b_1x1', 'AuxLogits/Conv2d_2a_5x5']
  heads = ['Logits/Conv2d_1c_1x1', 'AuxLogits/Conv2d_2b_1x1']
  return [f'InceptionV3/{n}' for n in (*normalized(layers), *plain(heads))]


def slim_inception_v1():
  names = [f'3{x}' for x in 'bc'] + [f'4{x}' for x in 'bcdef'] + ['5b', '5c']
  double = ('Conv2d_0a_1x1', 'Conv2d_0b_3x3')
  table = {
    f'Mixed_{name}': (double[:1], double, double, ('Conv2d_0b_1x1',))
    for name in names
  }
  odd = ('Conv2d_0a_1x1', 'Conv2d_0a_3x3')
  table['Mixed_5b'] = (double[:1], double, odd, ('Conv2d_0b_1x1',))
  stem = ('Conv2d_1a_7x7', 'Conv2d_2b_1x1', 'Conv2d_2c_3x3')
  layers = [*stem, *blocks(table)]
  heads = ['Logits/Conv2d_0c_1x1']
  return [f'InceptionV1/{n}' for n in (*normalized(layers), *plain(heads))]


def slim_resnet_v1_50():
  layers = ['conv1']
  for block, units in enumerate((3, 4, 6, 3), start=1):
    for unit in range(1, units + 1):
      steps = ['conv1', 'conv2', 'conv3', *(['shortcut'] * (unit == 1))]
      start = f'block{block}/unit_{unit}/bottleneck_v1'
      layers += [f'{start}/{step}' for step in steps]
  names = (*normalized(layers, scale=True), *plain(['logits']))
  return [f'resnet_v1_50/{name}' for name in names]


def slim_inception_v2():
  long = ('Conv2d_0a_1x1', 'Conv2d_0b_3x3', 'Conv2d_0c_3x3')
  block = (long[:1], long[:2], long, ('Conv2d_0b_1x1',))
  halving = (
    ('Conv2d_0a_1x1', 'Conv2d_1a_3x3'),
    ('Conv2d_0a_1x1', 'Conv2d_0b_3x3', 'Conv2d_1a_3x3'),
  )
  table = {
    **{
      f'Mixed_{n}': block for n in ('3b', '3c', *_of('4', 'bcde'), '5b', '5c')
    },
    **dict.fromkeys(('Mixed_4a', 'Mixed_5a'), halving),
  }
  layers = ['Conv2d_2b_1x1', 'Conv2d_2c_3x3', *blocks(table)]
  # Separable, and so not normalized.
  stem = ('depthwise_weights', 'pointwise_weights', 'biases')
  names = [f'Conv2d_1a_7x7/{name}' for name in stem]
  names += [*normalized(layers), *plain(['Logits/Conv2d_1c_1x1'])]
  return [f'InceptionV2/{name}' for name in names]


def slim_inception_v4():
  one, pooled = ('Conv2d_0a_1x1',), ('Conv2d_0b_1x1',)
  a = (
    one,
    ('Conv2d_0a_1x1', 'Conv2d_0b_3x3'),
    ('Conv2d_0a_1x1', 'Conv2d_0b_3x3', 'Conv2d_0c_3x3'),
    pooled,
  )
  c = (
    one,
    ('Conv2d_0a_1x1', 'Conv2d_0b_1x3', 'Conv2d_0c_3x1'),
    (
      *('Conv2d_0a_1x1', 'Conv2d_0b_3x1', 'Conv2d_0c_1x3'),
      *('Conv2d_0d_1x3', 'Conv2d_0e_3x1'),
    ),
    pooled,
  )
  seven = ('Conv2d_0a_1x1', 'Conv2d_0b_1x7', 'Conv2d_0c_7x1')
  table = {
    'Mixed_3a': ((), ('Conv2d_0a_3x3',)),
    'Mixed_4a': (
      ('Conv2d_0a_1x1', 'Conv2d_1a_3x3'),
      (*seven, 'Conv2d_1a_3x3'),
    ),
    'Mixed_5a': (('Conv2d_1a_3x3',),),
    'Mixed_6a': (
      ('Conv2d_1a_3x3',),
      ('Conv2d_0a_1x1', 'Conv2d_0b_3x3', 'Conv2d_1a_3x3'),
    ),
    'Mixed_7a': (
      ('Conv2d_0a_1x1', 'Conv2d_1a_3x3'),
      (*seven, 'Conv2d_1a_3x3'),
    ),
    **{f'Mixed_{name}': a for name in _of('5', 'bcde')},
    **{f'Mixed_{name}': _V3_6 for name in _of('6', 'bcdefgh')},
    **{f'Mixed_{name}': c for name in _of('7', 'bcd')},
  }
  stem = ('Conv2d_1a_3x3', 'Conv2d_2a_3x3', 'Conv2d_2b_3x3')
  layers = [*stem, *blocks(table)]
  layers += ['AuxLogits/Conv2d_1b_1x1', 'AuxLogits/Conv2d_2a']
  names = (
    *normalized(layers),
    *plain(['Logits/Logits', 'AuxLogits/Aux_logits']),
  )
  return [f'InceptionV4/{name}' for name in names]


def slim_inception_resnet_v2():
  one = ('Conv2d_1x1',)
  long = ('Conv2d_0a_1x1', 'Conv2d_0b_3x3', 'Conv2d_0c_3x3')
  kinds = {
    'block35': (one, long[:2], long),
    'block17': (one, ('Conv2d_0a_1x1', 'Conv2d_0b_1x7', 'Conv2d_0c_7x1')),
    'block8': (one, ('Conv2d_0a_1x1', 'Conv2d_0b_1x3', 'Conv2d_0c_3x1')),
  }
  repeated = {
    f'{scope}/{kind}_{i}': kinds[kind]
    for scope, kind, count in (
      ('Repeat', 'block35', 10),
      ('Repeat_1', 'block17', 20),
      ('Repeat_2', 'block8', 9),
    )
    for i in range(1, count + 1)
  } | {'Block8': kinds['block8']}
  halving = ('Conv2d_0a_1x1', 'Conv2d_0b_3x3', 'Conv2d_1a_3x3')
  table = repeated | {
    'Mixed_5b': (
      one,
      ('Conv2d_0a_1x1', 'Conv2d_0b_5x5'),
      long,
      ('Conv2d_0b_1x1',),
    ),
    'Mixed_6a': (('Conv2d_1a_3x3',), halving),
    'Mixed_7a': (halving[::2], halving[::2], halving),
  }
  layers = [*_V3_STEM, *blocks(table), 'Conv2d_7b_1x1']
  layers += ['AuxLogits/Conv2d_1b_1x1', 'AuxLogits/Conv2d_2a_5x5']
  heads = ['Logits/Logits', 'AuxLogits/Logits']
  heads += [f'{block}/Conv2d_1x1' for block in repeated]
  names = (*normalized(layers), *plain(heads))
  return [f'InceptionResnetV2/{name}' for name in names]


def slim_resnet_v2_50():
  before, convolved, added = [], [], ['conv1', 'logits']
  for block, units in enumerate((3, 4, 6, 3), start=1):
    for unit in range(1, units + 1):
      start = f'block{block}/unit_{unit}/bottleneck_v2'
      before.append(f'{start}/preact')
      convolved += [f'{start}/conv1', f'{start}/conv2']
      added += [f'{start}/conv3', *([f'{start}/shortcut'] * (unit == 1))]
  # A normalization that is no convolution's has no scope BatchNorm.
  names = [
    f'{scope}/{kind}'
    for scope in (*before, 'postnorm')
    for kind in ('beta', 'gamma', 'moving_mean', 'moving_variance')
  ]
  names += [*normalized(convolved, scale=True), *plain(added)]
  return [f'resnet_v2_50/{name}' for name in names]


def _of(stage, letters):
  return [f'{stage}{letter}' for letter in letters]


def slim_vgg_16():
  layers = [
    f'conv{group}/conv{group}_{i}'
    for group, count in enumerate((2, 2, 3, 3, 3), start=1)
    for i in range(1, count + 1)
  ]
  names = plain([*layers, 'fc6', 'fc7', 'fc8'])
  return [f'vgg_16/{name}' for name in names]


def old_kernels():
  """{layer: size of its kernel} of the first Inception v3's blocks."""
  return {
    f'{block}/{branch}/Conv{f"_{i}" if i else ""}': size
    for block, branches in OLD_V3.items()
    for branch, sizes in branches.items()
    for i, size in enumerate(sizes)
  }


def old_inception_v3():
  layers = [*(f'conv{i}' for i in range(5)), *old_kernels()]
  layers += ['aux_logits/proj', 'aux_logits/Conv']
  return [*normalized(layers), *plain(['logits/logits', 'aux_logits/FC'])]


# Those of TF-Slim, by our names of the nets.
OF_SLIM = {
  'inception_v1': slim_inception_v1,
  'resnet_v1_50': slim_resnet_v1_50,
  'slim_inception_v3': slim_inception_v3,
}
