"""VGG of 11, 16 and 19 layers: the paper's nets A, D and E.

There are two families. The nets of the 2017 trainers normalize their
convolutions, unlike the paper's. TF-Slim's have no normalization, and their
fully connected layers are convolutions: for images larger than 224 pixels,
logits are the mean over all positions, as in section 3.2 of the paper.

References:
  Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image
  Recognition, https://arxiv.org/abs/1409.1556.
"""

import keras

from slim.nets.blocks import layers

BATCH_NORM = layers.BatchNorm(decay=0.999, epsilon=0.001)

# Number of convolutions before each of the five poolings.
GROUPS = {
  'vgg_a': (1, 1, 2, 2, 2),
  'vgg_16': (2, 2, 3, 3, 3),
  'vgg_19': (2, 2, 4, 4, 4),
}
FILTERS = (64, 128, 256, 512, 512)


def build(
  name: str,
  num_classes: int,
  *,
  image_size: int = 224,
  channels: int = 3,
  weight_decay: float = 0.0005,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds a VGG with batch normalization, of the 2017 trainers.

  Parameters at 1001 classes and 224 pixels: vgg_a 132,867,433, vgg_16
  138,361,641, both without the moving statistics.

  Args:
    name: a key of `GROUPS`.
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels, >= 32.
    channels: channels of the input, >= 1.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w, never for biases and beta; 0 adds nothing.
    dropout_keep_prob: fraction of the units that each of the two dropouts
      keeps, in (0, 1].
    seed: kernels use seeds seed + 1, + 2, ... in the order of the layers.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes] under any precision policy.
  """
  make = layers.Layers(
    layers.Style(layers.xavier, weight_decay, BATCH_NORM), seed
  )
  images = keras.Input((image_size, image_size, channels), name='images')
  x = (
    layers.LayerChain(_convolutions(make, images, name))
    .then(keras.layers.Flatten(name='flatten'))
    .then(make.dense, 'fc6', 4096)
    .then(make.dropout, 'dropout6', dropout_keep_prob)
    .then(make.dense, 'fc7', 4096)
    .then(make.dropout, 'dropout7', dropout_keep_prob)
    .then(make.logits, num_classes)
    .x
  )
  return keras.Model(images, x, name=name)


def build_slim(
  name: str,
  num_classes: int,
  *,
  image_size: int = 224,
  channels: int = 3,
  weight_decay: float = 0.0005,
  dropout_keep_prob: float = 0.5,
  seed: int = 1,
) -> keras.Model:
  """Builds TF-Slim's VGG, without normalization.

  Parameters at 1000 classes: vgg_a 132,863,336, vgg_16 138,357,544, vgg_19
  143,667,240. Arguments and result are those of `build`.
  """
  make = layers.Layers(layers.Style(layers.xavier, weight_decay), seed)
  images = keras.Input((image_size, image_size, channels), name='images')
  x = (
    layers.LayerChain(_convolutions(make, images, name))
    # For images below 224 pixels, the input here is smaller than 7 x 7.
    .then(make.conv_full, 'fc6', 4096, 7)
    .then(make.dropout, 'dropout6', dropout_keep_prob)
    .then(make.conv, 'fc7', 4096, 1)
    .then(make.dropout, 'dropout7', dropout_keep_prob)
    .then(make.logits, num_classes)
    .x
  )
  return keras.Model(images, x, name=f'slim_{name}')


def _convolutions(
  make: layers.Layers, x: keras.KerasTensor, name: str
) -> keras.KerasTensor:
  for group, count in enumerate(GROUPS[name], start=1):
    for i in range(1, count + 1):
      x = make.conv(x, f'conv{group}_{i}', FILTERS[group - 1], 3)
    x = layers.max_pool(x, f'pool{group}', 2, 2, 'valid')
  return x
