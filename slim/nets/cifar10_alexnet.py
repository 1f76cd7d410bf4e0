"""CifarNet, called cifar10_alexnet in 2017: the net of TensorFlow's tutorial.

Two convolutions with local response normalization, two fully connected layers.

References:
  TensorFlow's tutorial on CIFAR-10 of 2016, after the model of Krizhevsky's
  cuda-convnet.
"""

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
    dropout_keep_prob: not used, this net has no dropout; every net takes it.
    seed: kernels are drawn with seed + 1 to seed + 5 in the order of the
      layers. Equal seeds give equal weights.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.
  """
  del dropout_keep_prob

  def start(stddev: float, offset: int, bias: float) -> dict:
    return {
      'kernel_initializer': keras.initializers.TruncatedNormal(
        stddev=stddev, seed=seed + offset
      ),
      'bias_initializer': keras.initializers.Constant(bias),
    }

  def convolution(name: str, offset: int, bias: float) -> keras.layers.Layer:
    return keras.layers.Conv2D(
      64,
      5,
      padding='same',
      activation='relu',
      name=name,
      **start(0.05, offset, bias),
    )

  def dense(units: int, name: str, offset: int) -> keras.layers.Layer:
    return keras.layers.Dense(
      units,
      activation='relu',
      name=name,
      kernel_regularizer=(
        keras.regularizers.L2(weight_decay / 2) if weight_decay else None
      ),
      **start(0.04, offset, 0.1),
    )

  def pool(name: str) -> keras.layers.Layer:
    return keras.layers.MaxPooling2D(3, strides=2, padding='same', name=name)

  def normalize(name: str) -> keras.layers.Layer:
    return normalization.LocalResponseNormalization(
      depth_radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75, name=name
    )

  return keras.Sequential(
    [
      keras.Input((image_size, image_size, channels), name='images'),
      convolution('conv1', 1, 0.0),
      pool('pool1'),
      normalize('lrn1'),
      convolution('conv2', 2, 0.1),
      normalize('lrn2'),
      pool('pool2'),
      keras.layers.Flatten(name='flatten'),
      dense(384, 'fc3', 3),
      dense(192, 'fc4', 4),
      keras.layers.Dense(
        num_classes, name='logits', dtype='float32', **start(1 / 192, 5, 0.0)
      ),
    ],
    name='cifar10_alexnet',
  )
