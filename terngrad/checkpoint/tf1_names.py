"""Translates variable names of TensorFlow 1 programs to ours.

TF-Slim's `InceptionV3/Mixed_5b/Branch_1/Conv2d_0b_5x5/BatchNorm/beta` is our
`mixed_5b_branch_1_conv2d_0b_5x5_bn/beta`. The 2017 code's
`tower_0/conv1/weights/ExponentialMovingAverage` is our
`conv1/kernel/average`. The functions apply general spelling rules; `_NETS`
holds the exceptions of each net.
"""

import re

from slim import spelling
from terngrad.checkpoint import inception_v3_names
from terngrad.step import replicas

_LEAVES = {
  'weights': 'kernel',
  'biases': 'bias',
  'depthwise_weights': 'depthwise_kernel',
  'pointwise_weights': 'pointwise_kernel',
}
_NORMALIZED = ('beta', 'gamma', 'moving_mean', 'moving_variance')
_AVERAGE = 'ExponentialMovingAverage'
# Scopes that our names omit.
_DROPPED = ('bottleneck_v1', 'bottleneck_v2')
# Scopes of Inception-ResNet v2 that do not name their blocks. Our last block is
# of the third kind too, so a scope of that kind, as in `trainable_scopes`,
# includes it.
_BLOCKS = {
  'Repeat': 'block35',
  'Repeat_1': 'block17',
  'Repeat_2': 'block8',
  'Block8': 'block8_10',
}

_INCEPTION_V1 = {
  'mixed_5b_branch_2_conv2d_0a_3x3': 'mixed_5b_branch_2_conv2d_0b_3x3'
}
# Each net's scope, if it differs from the net's name, and its renamed layers.
_NETS: dict[str, tuple[str | None, dict[str, str]]] = {
  'cifar10_alexnet': ('CifarNet', {}),
  'googlenet': ('InceptionV1', _INCEPTION_V1),
  'inception_v1': (None, _INCEPTION_V1),
  'inception_v3': (None, inception_v3_names.OLD | inception_v3_names.SLIM),
  'slim_inception_v3': (None, inception_v3_names.SLIM),
  'inception_v4': (
    None,
    {
      'aux_conv2d_2a': 'aux_conv2d_2a_5x5',
      'mixed_3a_branch_1_conv2d_0a_3x3': 'mixed_3a_branch_1_conv2d_1a_3x3',
    },
  ),
  'slim_lenet': ('LeNet', {'fc4': 'logits'}),
}
_HEADS = {'fc8': 'logits', 'aux_conv2d_2b_1x1': 'aux_logits'}


def translate(net: str, theirs: str) -> str:
  """Returns our name of a variable of a TensorFlow 1 checkpoint.

  Args:
    net: name in `slim.nets.factory.NETS`.
    theirs: 'InceptionV3/Conv2d_1a_3x3/weights'.

  Returns:
    'conv2d_1a_3x3/kernel'; '.../average' for a moving average of values. The
    net need not have a variable of this name. '' for variables without a
    counterpart, such as an optimizer's slots.
  """
  parts = _strip_tower(theirs).split('/')
  averaged = parts[-1] == _AVERAGE
  if averaged:
    parts.pop()
  leaf = _LEAVES.get(parts[-1], parts[-1])
  if leaf not in (*_LEAVES.values(), *_NORMALIZED) or len(parts) < 2:
    return ''
  scopes = [part for part in parts[:-1] if part != 'BatchNorm']
  layer = _layer(net, scopes)
  if not layer:
    return ''
  name = f'{layer}_bn/{leaf}' if leaf in _NORMALIZED else f'{layer}/{leaf}'
  return replicas.average_name(name) if averaged else name


def is_in_scope(net: str, name: str, scope: str) -> bool:
  """Returns whether our variable is in a scope, in TF-Slim's names or ours.

  Examples:
    >>> is_in_scope('inception_v3', 'logits/kernel', 'InceptionV3/Logits')
    True
    >>> is_in_scope('inception_v3', 'conv10/kernel', 'conv1')
    False

  Args:
    net: name in `slim.nets.factory.NETS`.
    name: our name of the variable.
    scope: 'InceptionV3/AuxLogits', 'aux_logits' or a complete variable name.
  """
  scope = scope.strip('/')
  if name == scope or name == translate(net, scope):
    return True
  layer = _layer(net, _strip_tower(scope).split('/'))
  if not layer:  # the scope of the whole net
    return True
  starts = {f'{start}{end}' for start in (scope, layer) for end in '/_'}
  return name.startswith(tuple(starts))


def _strip_tower(name: str) -> str:
  return re.sub(r'^tower_\d+/', '', name.removesuffix(':0'))


def _layer(net: str, scopes: list[str]) -> str:
  """Returns our layer name, or the prefix of it, for the parts of a scope."""
  net = spelling.split(net)[0]
  root, renamed = _NETS.get(net, (None, {}))
  if _fold(scopes[0]) in (_fold(root or net), _fold(net)):
    scopes = scopes[1:]
  scopes = [_BLOCKS.get(scope, scope).lower() for scope in scopes]
  scopes = [scope for scope in scopes if scope not in _DROPPED]
  if scopes[:1] == ['logits']:
    return 'logits'
  if scopes[:1] == ['auxlogits']:
    scopes = ['aux', *scopes[1:]]
  # 'conv1/conv1_1' repeats the layer's name.
  scopes = [
    scope
    for scope, next_scope in zip(scopes, (*scopes[1:], ''), strict=False)
    if not next_scope.startswith(f'{scope}_')
  ]
  layer = '_'.join(scopes)
  # Inception-ResNet v2 omits the position of a branch's only convolution.
  layer = re.sub(r'(_branch_0_conv2d)_1x1$', r'\1_0a_1x1', layer)
  return renamed.get(layer) or _HEADS.get(layer, layer)


def _fold(scope: str) -> str:
  return scope.lower().replace('_', '').removeprefix('slim')
