"""`mnist_distributed_train`, which can also train a small net with BatchNorm.

The library's own nets that have it are large for many processes on one machine.
"""

import sys

import keras

from slim.nets import factory
from terngrad.bin import mnist_distributed_train
from tests.bin import normalized

NAME = 'small_normalized'


def build(num_classes, image_size, channels, weight_decay, seed, **unused):
  """Two normalized convolutions and the logits; see `slim.nets.lenet.build`."""
  del unused
  make = normalized.layers_of(weight_decay, seed)
  images = keras.Input((image_size, image_size, channels), name='images')
  x = make.conv(images, 'conv1', 6, 3, strides=2)
  x = make.conv(x, 'conv2', 8, 3, strides=2)
  x = keras.layers.Flatten(name='flatten')(x)
  return keras.Model(images, make.logits(x, num_classes), name=NAME)


NET = factory.Net(build, 28, default_channels=1)


if __name__ == '__main__':
  factory.NETS[NAME] = NET
  sys.exit(mnist_distributed_train.run())
