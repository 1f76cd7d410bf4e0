"""CifarNet of TensorFlow's tutorial, called cifar10_alexnet in 2017.

Two convolutions with local response normalization, two fully connected layers.

References:
  TensorFlow's tutorial on CIFAR-10 of 2016, after the model of Krizhevsky's
  cuda-convnet.
"""

import functools
from typing import Any

import keras

from slim.nets.blocks import normalization


def build(
  num_classes: int,
  image_size: int = 24,
  channels: int = 3,
  weight_decay: float = 0.004,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds CifarNet; 1,068,298 parameters at 10 classes and 24x24x3.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 1.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for the
      kernels of fc3 and fc4, and for no others; 0 adds nothing.
    dropout_keep_prob: not used, because this net has no dropout.
    seed: kernels use seeds seed + 1 to seed + 5 in the order of the layers.
      Equal seeds give equal weights.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.
  """
  del dropout_keep_prob

  def start(stddev: float, offset: int, bias: float) -> dict[str, Any]:
    return {
      'kernel_initializer': keras.initializers.TruncatedNormal(
        stddev=stddev, seed=seed + offset
      ),
      'bias_initializer': keras.initializers.Constant(bias),
    }

  convolution = functools.partial(
    keras.layers.Conv2D, 64, 5, padding='same', activation='relu'
  )
  dense = functools.partial(
    keras.layers.Dense,
    activation='relu',
    kernel_regularizer=(
      keras.regularizers.L2(weight_decay / 2) if weight_decay else None
    ),
  )
  pool = functools.partial(
    keras.layers.MaxPooling2D, 3, strides=2, padding='same'
  )
  normalize = functools.partial(
    normalization.LocalResponseNormalization,
    depth_radius=4,
    bias=1.0,
    alpha=0.001 / 9,
    beta=0.75,
  )
  return keras.Sequential(
    [
      keras.Input((image_size, image_size, channels), name='images'),
      convolution(name='conv1', **start(0.05, 1, 0.0)),
      pool(name='pool1'),
      normalize(name='lrn1'),
      convolution(name='conv2', **start(0.05, 2, 0.1)),
      normalize(name='lrn2'),
      pool(name='pool2'),
      keras.layers.Flatten(name='flatten'),
      dense(384, name='fc3', **start(0.04, 3, 0.1)),
      dense(192, name='fc4', **start(0.04, 4, 0.1)),
      keras.layers.Dense(
        num_classes, name='logits', dtype='float32', **start(1 / 192, 5, 0.0)
      ),
    ],
    name='cifar10_alexnet',
  )
