import pytest

from slim.nets import factory
from slim.nets import slim_names
from tests.slim.nets import outlines


def variables(name):
  model = outlines.usual(name)
  return [
    outlines.path(model, v)
    for v in [*model.trainable_variables, *outlines.statistics(model)]
  ]


# As the published checkpoints list them.
PUBLISHED = [
  ('inception_v1', 'conv2d_1a_7x7/kernel', 'InceptionV1/Conv2d_1a_7x7/weights'),
  (
    'inception_v1',
    'conv2d_1a_7x7_bn/beta',
    'InceptionV1/Conv2d_1a_7x7/BatchNorm/beta',
  ),
  (
    'googlenet',
    'mixed_3b_branch_3_conv2d_0b_1x1_bn/moving_variance',
    'InceptionV1/Mixed_3b/Branch_3/Conv2d_0b_1x1/BatchNorm/moving_variance',
  ),
  (
    'inception_v1',
    'mixed_5b_branch_2_conv2d_0b_3x3/kernel',
    'InceptionV1/Mixed_5b/Branch_2/Conv2d_0a_3x3/weights',
  ),
  (
    'inception_v1',
    'mixed_5c_branch_2_conv2d_0b_3x3/kernel',
    'InceptionV1/Mixed_5c/Branch_2/Conv2d_0b_3x3/weights',
  ),
  ('inception_v1', 'logits/bias', 'InceptionV1/Logits/Conv2d_0c_1x1/biases'),
  (
    'inception_v2',
    'conv2d_1a_7x7/depthwise_kernel',
    'InceptionV2/Conv2d_1a_7x7/depthwise_weights',
  ),
  (
    'inception_v2',
    'conv2d_1a_7x7/pointwise_kernel',
    'InceptionV2/Conv2d_1a_7x7/pointwise_weights',
  ),
  ('inception_v2', 'logits/kernel', 'InceptionV2/Logits/Conv2d_1c_1x1/weights'),
  (
    'slim_inception_v3',
    'mixed_5c_branch_1_conv2d_0a_1x1/kernel',
    'InceptionV3/Mixed_5c/Branch_1/Conv2d_0b_1x1/weights',
  ),
  (
    'inception_v3',
    'mixed_5c_branch_1_conv2d_0b_5x5_bn/beta',
    'InceptionV3/Mixed_5c/Branch_1/Conv_1_0c_5x5/BatchNorm/beta',
  ),
  (
    'inception_v3',
    'mixed_6a_branch_0_conv2d_1a_3x3/kernel',
    'InceptionV3/Mixed_6a/Branch_0/Conv2d_1a_1x1/weights',
  ),
  (
    'inception_v3',
    'mixed_6a_branch_1_conv2d_1a_3x3/kernel',
    'InceptionV3/Mixed_6a/Branch_1/Conv2d_1a_1x1/weights',
  ),
  (
    'inception_v3',
    'mixed_7b_branch_1_conv2d_0c_3x1/kernel',
    'InceptionV3/Mixed_7b/Branch_1/Conv2d_0b_3x1/weights',
  ),
  (
    'inception_v3',
    'mixed_7c_branch_1_conv2d_0c_3x1/kernel',
    'InceptionV3/Mixed_7c/Branch_1/Conv2d_0c_3x1/weights',
  ),
  (
    'inception_v3',
    'aux_logits/kernel',
    'InceptionV3/AuxLogits/Conv2d_2b_1x1/weights',
  ),
  (
    'inception_v3',
    'aux_conv2d_2a_5x5/kernel',
    'InceptionV3/AuxLogits/Conv2d_2a_5x5/weights',
  ),
  (
    'inception_v4',
    'mixed_3a_branch_1_conv2d_1a_3x3/kernel',
    'InceptionV4/Mixed_3a/Branch_1/Conv2d_0a_3x3/weights',
  ),
  (
    'inception_v4',
    'aux_conv2d_2a_5x5_bn/beta',
    'InceptionV4/AuxLogits/Conv2d_2a/BatchNorm/beta',
  ),
  (
    'inception_v4',
    'aux_logits/bias',
    'InceptionV4/AuxLogits/Aux_logits/biases',
  ),
  ('inception_v4', 'logits/kernel', 'InceptionV4/Logits/Logits/weights'),
  (
    'inception_resnet_v2',
    'mixed_5b_branch_0_conv2d_0a_1x1/kernel',
    'InceptionResnetV2/Mixed_5b/Branch_0/Conv2d_1x1/weights',
  ),
  (
    'inception_resnet_v2',
    'mixed_7a_branch_0_conv2d_0a_1x1/kernel',
    'InceptionResnetV2/Mixed_7a/Branch_0/Conv2d_0a_1x1/weights',
  ),
  (
    'inception_resnet_v2',
    'block35_10_branch_0_conv2d_0a_1x1/kernel',
    'InceptionResnetV2/Repeat/block35_10/Branch_0/Conv2d_1x1/weights',
  ),
  (
    'inception_resnet_v2',
    'block17_2_conv2d_1x1/bias',
    'InceptionResnetV2/Repeat_1/block17_2/Conv2d_1x1/biases',
  ),
  (
    'inception_resnet_v2',
    'block8_1_branch_1_conv2d_0c_3x1/kernel',
    'InceptionResnetV2/Repeat_2/block8_1/Branch_1/Conv2d_0c_3x1/weights',
  ),
  (
    'inception_resnet_v2',
    'block8_10_branch_0_conv2d_0a_1x1_bn/beta',
    'InceptionResnetV2/Block8/Branch_0/Conv2d_1x1/BatchNorm/beta',
  ),
  (
    'inception_resnet_v2',
    'aux_logits/bias',
    'InceptionResnetV2/AuxLogits/Logits/biases',
  ),
  (
    'resnet_v1_50',
    'block4_unit_3_conv2_bn/gamma',
    'resnet_v1_50/block4/unit_3/bottleneck_v1/conv2/BatchNorm/gamma',
  ),
  (
    'resnet_v1_101',
    'block1_unit_1_shortcut/kernel',
    'resnet_v1_101/block1/unit_1/bottleneck_v1/shortcut/weights',
  ),
  ('resnet_v1_50', 'conv1/kernel', 'resnet_v1_50/conv1/weights'),
  ('resnet_v1_50', 'logits/bias', 'resnet_v1_50/logits/biases'),
  (
    'resnet_v2_50',
    'block3_unit_23_preact_bn/moving_mean',
    'resnet_v2_50/block3/unit_23/bottleneck_v2/preact/moving_mean',
  ),
  ('resnet_v2_152', 'postnorm_bn/gamma', 'resnet_v2_152/postnorm/gamma'),
  ('slim_vgg_16', 'conv5_3/bias', 'vgg_16/conv5/conv5_3/biases'),
  ('vgg_19', 'fc6/kernel', 'vgg_19/fc6/weights'),
  ('slim_vgg_a', 'logits/kernel', 'vgg_a/fc8/weights'),
  ('slim_alexnet_v2', 'logits/kernel', 'alexnet_v2/fc8/weights'),
  ('overfeat', 'conv1/kernel', 'overfeat/conv1/weights'),
  ('cifarnet', 'fc4/kernel', 'CifarNet/fc4/weights'),
  ('slim_lenet', 'logits/kernel', 'LeNet/fc4/weights'),
]


@pytest.mark.parametrize(('net', 'ours', 'theirs'), PUBLISHED)
def test_names_are_those_of_published_checkpoints(net, ours, theirs):
  assert slim_names.slim_name(net, ours) == theirs


NETS = [
  pytest.param(name, marks=pytest.mark.slow)
  if name.startswith(('resnet', 'inception_v4', 'inception_resnet'))
  and name != 'resnet_v2_50'
  else name
  for name in slim_names.ROOTS
]


@pytest.mark.parametrize('name', NETS)
def test_every_variable_has_a_name_of_its_own(name):
  ours = variables(name)
  theirs = [slim_names.slim_name(name, variable) for variable in ours]
  assert len(set(theirs)) == len(theirs) == len(ours)
  # Nothing of our spelling is left.
  for scope in theirs:
    words = scope.removeprefix(slim_names.ROOTS[name])
    assert not any(
      word in words
      for word in ('_bn', 'kernel', '_branch', '_conv2d', 'aux_', '_unit')
    )


@pytest.mark.parametrize(
  ('ours', 'theirs'),
  [
    ('conv2d_1a_3x3/kernel', 'conv0/weights'),
    ('conv2d_4a_3x3_bn/moving_mean', 'conv4/BatchNorm/moving_mean'),
    (
      'mixed_5b_branch_1_conv2d_0b_5x5/kernel',
      'mixed_35x35x256a/branch5x5/Conv_1/weights',
    ),
    (
      'mixed_5d_branch_3_conv2d_0b_1x1_bn/beta',
      'mixed_35x35x288b/branch_pool/Conv/BatchNorm/beta',
    ),
    (
      'mixed_6a_branch_1_conv2d_1a_3x3/kernel',
      'mixed_17x17x768a/branch3x3dbl/Conv_2/weights',
    ),
    (
      'mixed_6e_branch_2_conv2d_0e_1x7/kernel',
      'mixed_17x17x768e/branch7x7dbl/Conv_4/weights',
    ),
    (
      'mixed_7a_branch_1_conv2d_1a_3x3/kernel',
      'mixed_17x17x1280a/branch7x7x3/Conv_3/weights',
    ),
    (
      'mixed_7c_branch_2_conv2d_0d_3x1/kernel',
      'mixed_8x8x2048b/branch3x3dbl/Conv_3/weights',
    ),
    ('aux_conv2d_1b_1x1/kernel', 'aux_logits/proj/weights'),
    ('aux_conv2d_2a_5x5_bn/beta', 'aux_logits/Conv/BatchNorm/beta'),
    ('aux_logits/bias', 'aux_logits/FC/biases'),
    ('logits/kernel', 'logits/logits/weights'),
  ],
)
def test_names_of_2016_are_numbered_in_the_order_of_the_branch(ours, theirs):
  assert slim_names.inception_2016_name(ours) == theirs


def test_every_variable_of_inception_v3_has_a_name_of_2016():
  ours = variables('inception_v3')
  theirs = {slim_names.inception_2016_name(variable) for variable in ours}
  assert len(theirs) == len(ours)


def test_averages_come_before_raw_values_and_all_families_are_tried():
  end = '/ExponentialMovingAverage'
  assert slim_names.candidates('inception_v3', 'logits/bias') == [
    f'InceptionV3/Logits/Conv2d_1c_1x1/biases{end}',
    'InceptionV3/Logits/Conv2d_1c_1x1/biases',
    f'logits/logits/biases{end}',
    'logits/logits/biases',
  ]
  assert slim_names.candidates('resnet_v1_50', 'logits/bias') == [
    f'resnet_v1_50/logits/biases{end}',
    'resnet_v1_50/logits/biases',
  ]


def test_a_net_that_was_never_published_has_no_candidates():
  unpublished = set(factory.NETS) - set(slim_names.ROOTS)
  assert unpublished == {'alexnet', 'cifar10_alexnet', 'lenet'}
  for net in unpublished:
    assert slim_names.candidates(net, 'logits/bias') == []


def test_a_dense_layer_takes_a_convolution_s_values_but_of_its_classes_only():
  assert slim_names.fits((1, 1, 1024, 1001), (1024, 1001))
  assert slim_names.fits((7, 7, 512, 4096), (25088, 4096))
  assert slim_names.fits((64,), (64,))
  assert slim_names.fits((), ())
  assert not slim_names.fits((1, 1, 1024, 1001), (1024, 1000))
  # As many elements, of other channels.
  assert not slim_names.fits((3, 3, 16, 32), (3, 3, 32, 16))
