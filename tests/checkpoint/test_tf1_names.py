import pytest

from terngrad.checkpoint import tf1_names


@pytest.mark.parametrize(
  ('net', 'theirs', 'expected'),
  [
    # The 2017 trainers.
    ('lenet', 'conv1/weights', 'conv1/kernel'),
    ('lenet', 'tower_0/conv1/biases', 'conv1/bias'),
    (
      'lenet',
      'tower_3/fc3/weights/ExponentialMovingAverage',
      'fc3/kernel/average',
    ),
    ('alexnet', 'conv1/BatchNorm/moving_mean', 'conv1_bn/moving_mean'),
    # TF-Slim.
    ('cifar10_alexnet', 'CifarNet/logits/weights', 'logits/kernel'),
    ('slim_lenet', 'LeNet/fc4/biases', 'logits/bias'),
    ('slim_vgg_16', 'vgg_16/conv1/conv1_1/weights', 'conv1_1/kernel'),
    ('slim_vgg_16', 'vgg_16/fc8/weights', 'logits/kernel'),
    (
      'inception_v1',
      'InceptionV1/Mixed_3b/Branch_1/Conv2d_0a_1x1/BatchNorm/beta',
      'mixed_3b_branch_1_conv2d_0a_1x1_bn/beta',
    ),
    (
      'inception_v3',
      'InceptionV3/Logits/Conv2d_1c_1x1/weights',
      'logits/kernel',
    ),
    (
      'inception_v3',
      'InceptionV3/AuxLogits/Conv2d_1b_1x1/weights',
      'aux_conv2d_1b_1x1/kernel',
    ),
    (
      'inception_v3',
      'InceptionV3/AuxLogits/Conv2d_2b_1x1/biases',
      'aux_logits/bias',
    ),
    (
      'inception_v4',
      'InceptionV4/AuxLogits/Aux_logits/weights',
      'aux_logits/kernel',
    ),
    (
      'inception_resnet_v2',
      'InceptionResnetV2/AuxLogits/Logits/weights',
      'aux_logits/kernel',
    ),
    (
      'resnet_v1_50',
      'resnet_v1_50/block1/unit_1/bottleneck_v1/conv1/BatchNorm/gamma',
      'block1_unit_1_conv1_bn/gamma',
    ),
    (
      'resnet_v2_50',
      'resnet_v2_50/block4/unit_3/bottleneck_v2/preact/beta',
      'block4_unit_3_preact_bn/beta',
    ),
  ],
)
def test_names_of_tensorflow_1_are_translated(net, theirs, expected):
  assert tf1_names.translate(net, theirs) == expected


@pytest.mark.parametrize(
  'theirs',
  [
    'global_step',
    'conv1/weights/Momentum',
    'conv1/weights/Adam_1',
    'weights',
    'LeNet/weights',
  ],
)
def test_steps_slots_and_values_without_a_layer_have_no_name(theirs):
  assert tf1_names.translate('lenet', theirs) == ''


@pytest.mark.parametrize(
  ('net', 'name', 'scope'),
  [
    ('lenet', 'logits/kernel', 'logits'),
    ('lenet', 'conv1/bias', 'conv1/'),
    ('lenet', 'mix/bias', '/mix/'),
    ('lenet', 'conv1/bias', 'conv1/biases'),
    ('slim_lenet', 'logits/kernel', 'LeNet/fc4'),
    ('slim_lenet', 'conv1/kernel', 'LeNet'),
    ('inception_v3', 'logits/bias', 'InceptionV3/Logits'),
    ('inception_v3', 'aux_conv2d_2a_5x5_bn/beta', 'InceptionV3/AuxLogits'),
    (
      'inception_v3',
      'mixed_7c_branch_0_conv2d_0a_1x1/kernel',
      'InceptionV3/Mixed_7c',
    ),
    ('resnet_v1_50', 'block4_unit_1_conv1/kernel', 'resnet_v1_50/block4'),
  ],
)
def test_a_scope_holds_its_variables(net, name, scope):
  assert tf1_names.is_in_scope(net, name, scope)


@pytest.mark.parametrize(
  ('net', 'name', 'scope'),
  [
    ('lenet', 'conv10/kernel', 'conv1'),
    ('lenet', 'conv1/bias', 'conv1/weights'),
    ('inception_v3', 'aux_logits/bias', 'InceptionV3/Logits'),
    ('inception_v3', 'logits/bias', 'InceptionV3/AuxLogits'),
    (
      'resnet_v1_50',
      'block1_unit_10_conv1/kernel',
      'resnet_v1_50/block1/unit_1',
    ),
  ],
)
def test_a_scope_does_not_hold_others(net, name, scope):
  assert not tf1_names.is_in_scope(net, name, scope)
