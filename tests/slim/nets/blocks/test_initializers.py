"""First values of kernels by name."""

import keras
import numpy as np
import pytest

from slim.nets.blocks import initializers


def net():
  return keras.Sequential(
    [
      keras.Input((6, 6, 3)),
      keras.layers.SeparableConv2D(8, 3, bias_initializer='ones'),
      keras.layers.BatchNormalization(),
      keras.layers.Dense(7),
    ]
  )


def drawn(text, seed=5):
  model = net()
  initializers.draw_kernels(model, initializers.parse(text), seed)
  return model


def test_kernels_are_drawn_with_the_next_seeds_in_their_order():
  found = [
    v.numpy()
    for v in drawn('normal:stddev=0.2').trainable_variables
    if 'kernel' in v.name
  ]
  assert len(found) == 3
  for number, values in enumerate(found, start=6):
    expected = keras.initializers.RandomNormal(stddev=0.2, seed=number)
    np.testing.assert_array_equal(values, expected(values.shape))


def test_variables_other_than_kernels_stay():
  for original, other in zip(net().weights, drawn('he').weights, strict=True):
    if 'kernel' not in original.name:
      np.testing.assert_array_equal(original.numpy(), other.numpy())


@pytest.mark.parametrize(
  ('text', 'expected'),
  [
    ('normal', keras.initializers.RandomNormal(0.0, 0.01)),
    ('truncated_normal:stddev=3', keras.initializers.TruncatedNormal(0.0, 3)),
    ('xavier', keras.initializers.GlorotUniform()),
    ('he', keras.initializers.HeNormal()),
  ],
)
def test_names_are_those_of_keras_initializers(text, expected):
  found = initializers.parse(text)(3)
  assert type(found) is type(expected)
  assert found.get_config() == expected.get_config() | {'seed': 3}


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('norml', "Did you mean 'normal'"),
    ('xavier:stddev=1', 'none'),
    ('normal:stddev=wide', 'number'),
    ('normal:stddev=0', 'a finite stddev above 0'),
    ('normal:stddev=nan', 'a finite stddev above 0'),
    ('normal:stddev=-1', 'a finite stddev above 0'),
    ('normal:stddev=inf', 'a finite stddev above 0'),
  ],
)
def test_invalid_initializers_are_refused(text, message):
  with pytest.raises(ValueError, match=message):
    initializers.parse(text)
