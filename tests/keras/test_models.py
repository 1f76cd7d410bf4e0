"""Models as their users make them: five steps each, with compression."""

import keras
import numpy as np
import pytest

import terngrad.keras
from tests.keras import small

pytestmark = [pytest.mark.slow, small.ARRAYS_OF_KERAS]
CODEC = 'error_feedback+ternary'
LOSS = 'sparse_categorical_crossentropy'
NUMBERS = np.random.default_rng(0)
LEFT = NUMBERS.normal(size=(40, 6)).astype(np.float32)
RIGHT = NUMBERS.normal(size=(40, 4)).astype(np.float32)
LABELS = NUMBERS.integers(0, 3, 40)
TARGETS = NUMBERS.normal(size=(40, 1)).astype(np.float32)


def dense(size, activation=None, **options):
  return keras.layers.Dense(size, activation, **options)


def functional():
  left, right = keras.Input((6,), name='left'), keras.Input((4,), name='right')
  joined = keras.layers.Concatenate()([dense(5)(left), dense(5)(right)])
  kind = dense(3, 'softmax', name='kind')(joined)
  size = dense(1, name='size')(joined)
  made = keras.Model([left, right], {'kind': kind, 'size': size})
  targets = {'kind': LABELS, 'size': TARGETS}
  return made, [LEFT, RIGHT], targets, {'kind': LOSS, 'size': 'mse'}


def shared_layer():
  first, second = keras.Input((6,)), keras.Input((6,))
  layer = dense(5, 'tanh')
  joined = keras.layers.Subtract()([layer(first), layer(second)])
  made = keras.Model([first, second], dense(3, 'softmax')(joined))
  return made, [LEFT, -LEFT[::-1]], LABELS, LOSS


def frozen_layer():
  made = keras.Sequential([keras.Input((6,)), dense(5), dense(3, 'softmax')])
  made.layers[0].trainable = False
  return made, LEFT, LABELS, LOSS


class Subclassed(keras.Model):
  def __init__(self):
    super().__init__()
    self.hidden = dense(5, 'relu')
    self.normal = keras.layers.BatchNormalization()
    self.dropped = keras.layers.Dropout(0.2, seed=1)
    self.out = dense(3, 'softmax')

  def call(self, inputs, training=False):
    values = self.normal(self.hidden(inputs), training=training)
    return self.out(self.dropped(values, training=training))


def subclassed():
  return Subclassed(), LEFT, LABELS, LOSS


def regularized():
  penalty = keras.regularizers.L2(0.01)
  hidden = dense(5, kernel_regularizer=penalty, activity_regularizer='l2')
  out = dense(3, 'softmax', kernel_constraint='max_norm')
  return keras.Sequential([keras.Input((6,)), hidden, out]), LEFT, LABELS, LOSS


def mixed():
  keras.config.set_dtype_policy('mixed_float16')
  try:
    out = dense(3, 'softmax', dtype='float32')
    made = keras.Sequential([keras.Input((6,)), dense(5), out])
  finally:
    keras.config.set_dtype_policy('float32')
  return made, LEFT, LABELS, LOSS


MODELS = [
  functional,
  shared_layer,
  frozen_layer,
  subclassed,
  regularized,
  mixed,
]


def five_steps(make, codec, replicas=1, workers=None):
  """(losses of five epochs of one step, arrays of all variables)."""
  keras.utils.set_random_seed(2)
  with small.strategy(replicas).scope():
    made, inputs, targets, loss = make()
    rule = keras.optimizers.Adam(0.01)
    if codec and not workers:
      rule = terngrad.keras.CompressedOptimizer(rule, codec)
    made.compile(rule, loss)
  if workers:
    terngrad.keras.virtual_workers(made, codec, workers)
  history = made.fit(inputs, targets, 40, 5, verbose=0, shuffle=False)
  return history.history['loss'], [v.numpy() for v in made.weights]


@pytest.mark.parametrize('make', MODELS)
def test_identity_is_bit_identical_to_no_wrapper(make):
  for replicas in (1, 2):
    losses, arrays = five_steps(make, 'identity', replicas)
    expected, plain = five_steps(make, None, replicas)
    small.assert_equal(arrays, plain)
    assert losses == expected


@pytest.mark.parametrize('make', MODELS)
def test_codecs_train_trainable_weights_and_leave_frozen_ones_unchanged(make):
  for options in ({'replicas': 2}, {'workers': 4}):
    if options == {'workers': 4} and make is mixed:
      continue
    losses, arrays = five_steps(make, CODEC, **options)
    assert np.isfinite(losses).all()
    assert all(np.isfinite(array).all() for array in arrays)
    if make is frozen_layer:
      keras.utils.set_random_seed(2)
      first = frozen_layer()[0].layers[0].kernel.numpy()
      np.testing.assert_array_equal(arrays[0], first)
