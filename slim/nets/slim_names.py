"""Names that published TensorFlow 1 checkpoints give our nets' variables.

Two families of checkpoints: TF-Slim's of 2016 and 2017, such as
inception_v1_2016_08_28, and the Inception v3 of March 2016, of the older
`inception.slim`.
From our name of a variable to theirs, so that every variable of a net either
finds its value or is missing, and scopes such as 'InceptionV3/Logits' can be
matched by prefix.

References:
  https://github.com/tensorflow/models, research/slim/nets and
  research/inception/inception/slim/inception_model.py.
"""

import math
import re
from collections import abc

AVERAGE = '/ExponentialMovingAverage'

_RESNETS = [
  f'resnet_v{version}_{depth}'
  for version in (1, 2)
  for depth in (50, 101, 152, 200)
]

# The scope of all of a net's variables. Nets of the 2017 trainers that TF-Slim
# also has, in part or whole, are here too.
ROOTS: dict[str, str] = {
  'alexnet_v2': 'alexnet_v2',
  'cifarnet': 'CifarNet',
  'googlenet': 'InceptionV1',
  'inception_resnet_v2': 'InceptionResnetV2',
  'inception_v1': 'InceptionV1',
  'inception_v2': 'InceptionV2',
  'inception_v3': 'InceptionV3',
  'inception_v4': 'InceptionV4',
  'overfeat': 'overfeat',
  'slim_alexnet_v2': 'alexnet_v2',
  'slim_inception_v3': 'InceptionV3',
  'slim_lenet': 'LeNet',
  'slim_vgg_16': 'vgg_16',
  'slim_vgg_a': 'vgg_a',
  'vgg_16': 'vgg_16',
  'vgg_19': 'vgg_19',
  'vgg_a': 'vgg_a',
  **{name: name for name in _RESNETS},
}

_INCEPTION = (
  (r'_branch_(\d)_conv2d_', r'/Branch_\1/Conv2d_'),
  (r'^(block\d+_\d+)_conv2d_', r'\1/Conv2d_'),
  (r'^mixed_', 'Mixed_'),
  (r'^conv2d_', 'Conv2d_'),
  (r'^aux_conv2d_', 'AuxLogits/Conv2d_'),
)
_VGG = (
  (r'^conv(\d)_(\d)$', r'conv\1/conv\1_\2'),
  (r'^logits$', 'fc8'),
)
_RESNET_UNIT = r'^(block\d)_unit_(\d+)_'

# Of a root: what turns the name of a layer into its scope, in this order. Most
# of the last lines of an Inception are slips that its checkpoints keep.
_SCOPES: dict[str, tuple[tuple[str, str], ...]] = {
  'alexnet_v2': ((r'^logits$', 'fc8'),),
  'CifarNet': (),
  'InceptionV1': (
    *_INCEPTION,
    (r'^(Mixed_5b/Branch_2/Conv2d)_0b_3x3$', r'\1_0a_3x3'),
    (r'^logits$', 'Logits/Conv2d_0c_1x1'),
  ),
  'InceptionV2': (*_INCEPTION, (r'^logits$', 'Logits/Conv2d_1c_1x1')),
  'InceptionV3': (
    *_INCEPTION,
    (r'^(Mixed_5c/Branch_1/Conv2d)_0a_1x1$', r'\1_0b_1x1'),
    (r'^Mixed_5c/Branch_1/Conv2d_0b_5x5$', 'Mixed_5c/Branch_1/Conv_1_0c_5x5'),
    (r'^(Mixed_6a/Branch_[01]/Conv2d_1a)_3x3$', r'\1_1x1'),
    (r'^(Mixed_7b/Branch_1/Conv2d)_0c_3x1$', r'\1_0b_3x1'),
    (r'^logits$', 'Logits/Conv2d_1c_1x1'),
    (r'^aux_logits$', 'AuxLogits/Conv2d_2b_1x1'),
  ),
  'InceptionV4': (
    *_INCEPTION,
    (r'^(Mixed_3a/Branch_1/Conv2d)_1a_3x3$', r'\1_0a_3x3'),
    (r'^(AuxLogits/Conv2d_2a)_5x5$', r'\1'),
    (r'^logits$', 'Logits/Logits'),
    (r'^aux_logits$', 'AuxLogits/Aux_logits'),
  ),
  'InceptionResnetV2': (
    *_INCEPTION,
    (r'^block8_10/', 'Block8/'),
    (r'^block35_', 'Repeat/block35_'),
    (r'^block17_', 'Repeat_1/block17_'),
    (r'^block8_', 'Repeat_2/block8_'),
    (r'^((?:Mixed_5b|.*lock.*)/Branch_0/Conv2d)_0a_1x1$', r'\1_1x1'),
    (r'^logits$', 'Logits/Logits'),
    (r'^aux_logits$', 'AuxLogits/Logits'),
  ),
  'LeNet': ((r'^logits$', 'fc4'),),
  'overfeat': ((r'^logits$', 'fc8'),),
  'vgg_16': _VGG,
  'vgg_19': _VGG,
  'vgg_a': _VGG,
  **{
    name: ((_RESNET_UNIT, rf'\1/unit_\2/bottleneck_{name[7:9]}/'),)
    for name in _RESNETS
  },
}

_WEIGHTS = {
  'kernel': 'weights',
  'bias': 'biases',
  'depthwise_kernel': 'depthwise_weights',
  'pointwise_kernel': 'pointwise_weights',
}


def candidates(net: str, variable: str) -> list[str]:
  """Names under which a published checkpoint may hold a variable.

  Args:
    net: a key of `slim.nets.factory.NETS`.
    variable: our name of its variable, 'conv1/kernel'.

  Returns:
    Names, the best first, each average before the raw value; empty for a net
    that was not published.
  """
  names = []
  if net in ROOTS:
    names.append(slim_name(net, variable))
  if ROOTS.get(net) == 'InceptionV3':
    names.append(inception_2016_name(variable))
  return [name + end for name in names for end in (AVERAGE, '')]


def slim_name(net: str, variable: str) -> str:
  """TF-Slim's name of a variable.

  Args:
    net: a key of `ROOTS`.
    variable: our name of its variable, 'conv1/kernel'.

  Returns:
    'InceptionV1/Conv2d_1a_7x7/BatchNorm/beta'.
  """
  layer, weight = variable.split('/')
  normalized = layer.endswith('_bn')
  scope = layer.removesuffix('_bn')
  for pattern, replacement in _SCOPES[ROOTS[net]]:
    scope = re.sub(pattern, replacement, scope)
  # A normalization before a convolution, ResNet v2's, has its own scope.
  if normalized and not scope.endswith(('preact', 'postnorm')):
    scope += '/BatchNorm'
  return f'{ROOTS[net]}/{scope}/{_WEIGHTS.get(weight, weight)}'


# Of the Inception v3 of 2016: the scope of each layer before the blocks and
# behind them, of each block, and of each branch of the kinds of block with our
# names of its convolutions in the order in which they are numbered.
_LAYERS_2016 = {
  'conv2d_1a_3x3': 'conv0',
  'conv2d_2a_3x3': 'conv1',
  'conv2d_2b_3x3': 'conv2',
  'conv2d_3b_1x1': 'conv3',
  'conv2d_4a_3x3': 'conv4',
  'aux_conv2d_1b_1x1': 'aux_logits/proj',
  'aux_conv2d_2a_5x5': 'aux_logits/Conv',
  'aux_logits': 'aux_logits/FC',
  'logits': 'logits/logits',
}
_POOLED = ('branch_pool', '0b_1x1')
_BRANCHES_35 = (
  ('branch1x1', '0a_1x1'),
  ('branch5x5', '0a_1x1', '0b_5x5'),
  ('branch3x3dbl', '0a_1x1', '0b_3x3', '0c_3x3'),
  _POOLED,
)
_BRANCHES_17 = (
  ('branch1x1', '0a_1x1'),
  ('branch7x7', '0a_1x1', '0b_1x7', '0c_7x1'),
  ('branch7x7dbl', '0a_1x1', '0b_7x1', '0c_1x7', '0d_7x1', '0e_1x7'),
  _POOLED,
)
_BRANCHES_8 = (
  ('branch1x1', '0a_1x1'),
  ('branch3x3', '0a_1x1', '0b_1x3', '0c_3x1'),
  ('branch3x3dbl', '0a_1x1', '0b_3x3', '0c_1x3', '0d_3x1'),
  _POOLED,
)
_BLOCKS_2016 = {
  'mixed_5b': ('mixed_35x35x256a', _BRANCHES_35),
  'mixed_5c': ('mixed_35x35x288a', _BRANCHES_35),
  'mixed_5d': ('mixed_35x35x288b', _BRANCHES_35),
  'mixed_6a': (
    'mixed_17x17x768a',
    (('branch3x3', '1a_3x3'), ('branch3x3dbl', '0a_1x1', '0b_3x3', '1a_3x3')),
  ),
  'mixed_6b': ('mixed_17x17x768b', _BRANCHES_17),
  'mixed_6c': ('mixed_17x17x768c', _BRANCHES_17),
  'mixed_6d': ('mixed_17x17x768d', _BRANCHES_17),
  'mixed_6e': ('mixed_17x17x768e', _BRANCHES_17),
  'mixed_7a': (
    'mixed_17x17x1280a',
    (
      ('branch3x3', '0a_1x1', '1a_3x3'),
      ('branch7x7x3', '0a_1x1', '0b_1x7', '0c_7x1', '1a_3x3'),
    ),
  ),
  'mixed_7b': ('mixed_8x8x2048a', _BRANCHES_8),
  'mixed_7c': ('mixed_8x8x2048b', _BRANCHES_8),
}


def inception_2016_name(variable: str) -> str:
  """The name of a variable of Inception v3 in the checkpoint of March 2016.

  Args:
    variable: our name, 'mixed_5b_branch_1_conv2d_0b_5x5/kernel'.

  Returns:
    'mixed_35x35x256a/branch5x5/Conv_1/weights'.
  """
  layer, weight = variable.split('/')
  name = layer.removesuffix('_bn')
  scope = _LAYERS_2016.get(name) or _branch_2016(name)
  if layer.endswith('_bn'):
    scope += '/BatchNorm'
  return f'{scope}/{_WEIGHTS.get(weight, weight)}'


def _branch_2016(layer):
  block, number, place = re.fullmatch(
    r'(mixed_\d[a-z])_branch_(\d)_conv2d_(.+)', layer
  ).groups()
  scope, branches = _BLOCKS_2016[block]
  branch, *places = branches[int(number)]
  index = places.index(place)
  return f'{scope}/{branch}/Conv{f"_{index}" if index else ""}'


def fits(saved: abc.Sequence[int], wanted: abc.Sequence[int]) -> bool:
  """Whether a saved value can be reshaped to a variable's shape.

  A dense layer and a convolution that sees the whole image hold the same
  numbers in the same order.

  Args:
    saved: shape of the value.
    wanted: shape of the variable.
  """
  saved, wanted = tuple(saved), tuple(wanted)
  return math.prod(saved) == math.prod(wanted) and saved[-1:] == wanted[-1:]
