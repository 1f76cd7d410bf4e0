"""Published checkpoints of TensorFlow 1 hold just what the nets here have."""

import pytest

from terngrad.checkpoint import tf1_names
from tests.checkpoint import published
from tests.slim.nets import outlines


def shapes_of(net):
  model = outlines.usual(net)
  return {
    outlines.path(model, v): v.shape
    for v in model.weights
    if 'seed_generator' not in v.path
  }


@pytest.mark.parametrize(
  ('net', 'listed'),
  [
    ('slim_inception_v3', published.slim_inception_v3),
    ('inception_v3', published.slim_inception_v3),
    ('inception_v3', published.old_inception_v3),
    ('inception_v1', published.slim_inception_v1),
    ('inception_v2', published.slim_inception_v2),
    pytest.param(
      'inception_v4', published.slim_inception_v4, marks=pytest.mark.slow
    ),
    pytest.param(
      'inception_resnet_v2',
      published.slim_inception_resnet_v2,
      marks=pytest.mark.slow,
    ),
    ('resnet_v1_50', published.slim_resnet_v1_50),
    ('resnet_v2_50', published.slim_resnet_v2_50),
    ('slim_vgg_16', published.slim_vgg_16),
  ],
)
def test_every_published_variable_is_one_of_the_net(net, listed):
  theirs = listed()
  ours = [tf1_names.translate(net, name) for name in theirs]
  assert len(set(ours)) == len(ours)
  assert set(ours) == set(shapes_of(net))


def test_the_first_inception_v3_counts_the_layers_of_a_branch_in_order():
  shapes = shapes_of('inception_v3')
  for layer, size in published.old_kernels().items():
    name = tf1_names.translate('inception_v3', f'{layer}/weights')
    assert shapes[name][:2] == size, (layer, name)


@pytest.mark.parametrize(
  ('net', 'ours', 'theirs'),
  [
    (
      'inception_v1',
      'conv2d_1a_7x7/kernel',
      'InceptionV1/Conv2d_1a_7x7/weights',
    ),
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
    (
      'inception_v2',
      'logits/kernel',
      'InceptionV2/Logits/Conv2d_1c_1x1/weights',
    ),
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
    ('inception_v3', 'conv2d_1a_3x3/kernel', 'conv0/weights'),
    (
      'inception_v3',
      'conv2d_4a_3x3_bn/moving_mean',
      'conv4/BatchNorm/moving_mean',
    ),
    (
      'inception_v3',
      'mixed_5b_branch_1_conv2d_0b_5x5/kernel',
      'mixed_35x35x256a/branch5x5/Conv_1/weights',
    ),
    (
      'inception_v3',
      'mixed_5d_branch_3_conv2d_0b_1x1_bn/beta',
      'mixed_35x35x288b/branch_pool/Conv/BatchNorm/beta',
    ),
    (
      'inception_v3',
      'mixed_6a_branch_1_conv2d_1a_3x3/kernel',
      'mixed_17x17x768a/branch3x3dbl/Conv_2/weights',
    ),
    (
      'inception_v3',
      'mixed_6e_branch_2_conv2d_0e_1x7/kernel',
      'mixed_17x17x768e/branch7x7dbl/Conv_4/weights',
    ),
    (
      'inception_v3',
      'mixed_7a_branch_1_conv2d_1a_3x3/kernel',
      'mixed_17x17x1280a/branch7x7x3/Conv_3/weights',
    ),
    (
      'inception_v3',
      'mixed_7c_branch_2_conv2d_0d_3x1/kernel',
      'mixed_8x8x2048b/branch3x3dbl/Conv_3/weights',
    ),
    ('inception_v3', 'aux_conv2d_1b_1x1/kernel', 'aux_logits/proj/weights'),
    (
      'inception_v3',
      'aux_conv2d_2a_5x5_bn/beta',
      'aux_logits/Conv/BatchNorm/beta',
    ),
    ('inception_v3', 'aux_logits/bias', 'aux_logits/FC/biases'),
    ('inception_v3', 'logits/kernel', 'logits/logits/weights'),
  ],
)
def test_a_published_name_is_translated_to_ours(net, ours, theirs):
  assert tf1_names.translate(net, theirs) == ours
