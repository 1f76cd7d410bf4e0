"""The names that TensorFlow 1's programs gave to variables, as ours.

TF-Slim wrote `InceptionV3/Mixed_5b/Branch_1/Conv2d_0b_5x5/BatchNorm/beta` for
our `mixed_5b_branch_1_conv2d_0b_5x5_bn/beta`, the 2017 code
`tower_0/conv1/weights/ExponentialMovingAverage` for our
`conv1/kernel/average`. The rules here are those of spelling; `_NETS` has what
is a net's own.
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
# Scopes that our names do without.
_DROPPED = ('bottleneck_v1', 'bottleneck_v2')
# Scopes of Inception-ResNet v2 that do not say which blocks are in them. Our
# last block is of the third kind too, so that a scope of all of that kind, as
# of `trainable_scopes`, takes it in.
_BLOCKS = {
  'Repeat': 'block35',
  'Repeat_1': 'block17',
  'Repeat_2': 'block8',
  'Block8': 'block8_10',
}

_INCEPTION_V1 = {
  'mixed_5b_branch_2_conv2d_0a_3x3': 'mixed_5b_branch_2_conv2d_0b_3x3'
}
# A net's own scope where it is not the net's name, and layers called otherwise.
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


def ours(net: str, theirs: str) -> str:
  """The name of a variable of a TensorFlow 1 checkpoint here.

  Args:
    net: name in `slim.nets.factory.NETS`.
    theirs: 'InceptionV3/Conv2d_1a_3x3/weights'.

  Returns:
    'conv2d_1a_3x3/kernel'; '.../average' for a moving average of values. A
    name of this form whether the net has such a variable or not; '' where
    there is none, as for an optimizer's slots.
  """
  parts = _without_tower(theirs).split('/')
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


def within(net: str, name: str, scope: str) -> bool:
  """Whether a variable of ours is in a scope, TF-Slim's or one of ours.

  Examples:
    >>> within('inception_v3', 'logits/kernel', 'InceptionV3/Logits')
    True
    >>> within('inception_v3', 'conv10/kernel', 'conv1')
    False

  Args:
    net: name in `slim.nets.factory.NETS`.
    name: of our variable.
    scope: 'InceptionV3/AuxLogits', 'aux_logits' or a whole variable's name.
  """
  scope = scope.strip('/')
  if name == scope or name == ours(net, scope):
    return True
  layer = _layer(net, _without_tower(scope).split('/'))
  if not layer:  # the scope of the whole net
    return True
  starts = {f'{start}{end}' for start in (scope, layer) for end in '/_'}
  return name.startswith(tuple(starts))


def _without_tower(name: str) -> str:
  return re.sub(r'^tower_\d+/', '', name.removesuffix(':0'))


def _layer(net: str, scopes: list[str]) -> str:
  """Our layer, or the start of its name, for the parts of a scope."""
  net = spelling.split(net)[0]
  own, renamed = _NETS.get(net, (None, {}))
  if _plain(scopes[0]) in (_plain(own or net), _plain(net)):
    scopes = scopes[1:]
  scopes = [_BLOCKS.get(scope, scope).lower() for scope in scopes]
  scopes = [scope for scope in scopes if scope not in _DROPPED]
  if scopes[:1] == ['logits']:
    return 'logits'
  if scopes[:1] == ['auxlogits']:
    scopes = ['aux', *scopes[1:]]
  # 'conv1/conv1_1' says the same twice.
  scopes = [
    scope
    for scope, after in zip(scopes, (*scopes[1:], ''), strict=False)
    if not after.startswith(f'{scope}_')
  ]
  layer = '_'.join(scopes)
  # Inception-ResNet v2 leaves the place of a branch's only convolution out.
  layer = re.sub(r'(_branch_0_conv2d)_1x1$', r'\1_0a_1x1', layer)
  return renamed.get(layer) or _HEADS.get(layer, layer)


def _plain(scope: str) -> str:
  return scope.lower().replace('_', '').removeprefix('slim')
