"""Small nets of each kind that activations are recomputed of."""

import keras

from slim.nets.blocks import layers

_BATCH_NORM = layers.BatchNorm(decay=0.9, epsilon=1e-5, scale=True)
SIZE, CLASSES = 8, 5


def _maker(batch_norm=_BATCH_NORM):
  style = layers.Style(layers.variance_scaling, 0.01, batch_norm)
  return layers.Layers(style, seed=3), keras.Input((SIZE, SIZE, 1))


def residual_net():
  """Three residual units with batch normalisation, one after the other."""
  make, images = _maker()
  x = make.conv(images, 'conv0', 4, 3)
  for number in range(1, 4):
    name = f'unit{number}'
    y = make.conv(x, f'{name}_conv1', 4, 3)
    y = make.conv(y, f'{name}_conv2', 4, 3, activation=None)
    x = keras.layers.Add(name=f'{name}_sum')([x, y])
    x = keras.layers.Activation('relu', name=f'{name}_act')(x)
  x = keras.layers.GlobalAveragePooling2D(name='pool')(x)
  return keras.Model(images, make.logits(x, CLASSES), name='residual')


def dropout_net():
  """Convolutions with biases, two dropouts, dense layers."""
  make, images = _maker(batch_norm=None)
  x = make.conv(images, 'conv1', 8, 3)
  x = layers.max_pool(x, 'pool1', 2, 2)
  x = make.dropout(x, 'dropout1', 0.7)
  x = make.conv(x, 'conv2', 8, 3)
  x = keras.layers.Flatten(name='flatten')(x)
  x = make.dense(x, 'fc3', 32)
  x = make.dropout(x, 'dropout3', 0.5)
  x = make.dense(x, 'fc4', 32)
  return keras.Model(images, make.logits(x, CLASSES), name='dropping')


def net_with_a_head():
  """Blocks of three branches; an auxiliary classifier after the second."""
  make, images = _maker()
  x = make.conv(images, 'conv0', 4, 3)
  for number in range(1, 5):
    branches = [
      make.conv(x, f'block{number}_branch{size}', 2, size) for size in (1, 3)
    ]
    pooled = layers.max_pool(x, f'block{number}_pool', 3, 1)
    x = keras.layers.Concatenate(name=f'block{number}')([*branches, pooled])
    x = make.conv(x, f'block{number}_end', 4, 1)
    if number == 2:
      y = layers.max_pool(x, 'aux_pool', 3, 2)
      y = make.conv(y, 'aux_conv', 3, 1)
      y = keras.layers.Flatten(name='aux_flatten')(y)
      aux = make.logits(y, CLASSES, 'aux_logits')
  x = keras.layers.GlobalAveragePooling2D(name='pool')(x)
  logits = make.logits(x, CLASSES)
  return keras.Model(images, [logits, aux], name='with_head')
