"""AlexNet in one column, without normalization: "one weird trick".

The 2017 trainers and TF-Slim build it alike but for the seeds, which the second
had not. Departing from the paper, kernels begin as TF-Slim's do.

References:
  Krizhevsky, One weird trick for parallelizing convolutional neural networks,
  https://arxiv.org/abs/1404.5997.
"""

import keras

from slim.nets.blocks import layers


def build(
  num_classes: int,
  image_size: int = 224,
  channels: int = 3,
  weight_decay: float = 0.0005,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds AlexNet v2; 50,308,009 parameters at 1001 classes.

  Args:
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 67. Of less than
      224, fc6 sees all there is; of more, the logits are the mean over all
      places.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w, never for biases; 0 adds nothing.
    dropout_keep_prob: share of the units of fc6 and of fc7 that dropout keeps,
      in (0, 1].
    seed: kernels are drawn with seed + 1 to seed + 8 in the order of the
      layers.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.
  """
  make = layers.Layers(
    layers.Style(layers.xavier, weight_decay, bias=0.1), seed
  )
  images = keras.Input((image_size, image_size, channels), name='images')
  x = make.conv(images, 'conv1', 64, 11, strides=4, padding='valid')
  x = layers.max_pool(x, 'pool1', 3, 2, 'valid')
  x = make.conv(x, 'conv2', 192, 5)
  x = layers.max_pool(x, 'pool2', 3, 2, 'valid')
  x = make.conv(x, 'conv3', 384, 3)
  x = make.conv(x, 'conv4', 384, 3)
  x = make.conv(x, 'conv5', 256, 3)
  x = layers.max_pool(x, 'pool5', 3, 2, 'valid')
  begin = {'initializer': layers.truncated_normal(0.005)}
  x = make.conv(x, 'fc6', 4096, min(5, x.shape[1]), padding='valid', **begin)
  x = make.dropout(x, 'dropout6', dropout_keep_prob)
  x = make.conv(x, 'fc7', 4096, 1, **begin)
  x = make.dropout(x, 'dropout7', dropout_keep_prob)
  logits = make.logits(x, num_classes, bias=0.0, **begin)
  return keras.Model(images, logits, name='alexnet_v2')
