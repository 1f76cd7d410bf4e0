"""Methods that make updates: for all variables, after float32 steps if any."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import terngrad
import terngrad.keras
from terngrad.codec.methods import registry
from terngrad.codec.methods import updates
from tests.keras import small

RATE = 0.125


def changes_of(codec):
  """How an optimizer of Keras changes two variables in a step, by RATE."""
  optimizer = terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(RATE), codec
  )
  variables = [
    keras.Variable(np.zeros((8, 5), np.float32), name=name)
    for name in ('hidden', 'logits')
  ]
  values = np.random.default_rng(0).normal(size=(2, 8, 5)).astype(np.float32)
  optimizer.apply([tf.constant(value) for value in values], variables)
  return values, [v.numpy() / RATE for v in variables]


@pytest.mark.parametrize(
  'codec', ['demo', {'logits': 'identity', '': 'demo:decay=0.5'}]
)
def test_variables_sent_as_float32_get_the_same_update(codec):
  values, changes = changes_of(codec)
  # Of two blocks of 8 x 5, 32 coefficients each are sent; of logits all.
  np.testing.assert_array_equal(np.abs(changes), np.ones_like(values))
  if isinstance(codec, dict):
    np.testing.assert_array_equal(changes[1], -np.sign(values[1]))


def test_another_code_beside_updates_is_refused():
  message = 'the same code for all variables beside demo.*received topk'
  with pytest.raises(ValueError, match=message):
    changes_of({'logits': 'topk', '': 'demo'})


def test_codes_of_gradients_are_unchanged():
  methods = [registry.method(text) for text in ('topk', 'identity')]
  assert updates.complete(methods) == tuple(methods)
  assert updates.float_steps(methods) == 0


def test_sparse_gradients_beside_updates_are_refused():
  optimizer = terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(RATE), 'demo'
  )
  variable = keras.Variable(np.zeros((8, 5), np.float32), name='embeddings')
  rows = tf.IndexedSlices(tf.ones([1, 5]), tf.constant([2]), (8, 5))
  with pytest.raises(ValueError, match='sparse ones of embeddings. Use anoth'):
    optimizer.apply([rows], [variable])


@pytest.mark.parametrize('make', [terngrad.Compressor, small.compiled])
def test_a_code_with_float_steps_is_refused_where_steps_are_alike(make):
  with pytest.raises(
    ValueError, match='first 7 steps are float32. Use it with terngrad.Trainer'
  ):
    make('one_bit_adam:warm_up=7+sign')


def test_a_trainer_takes_float_steps_first():
  keras.utils.set_random_seed(1)
  trainer = terngrad.Trainer(
    small.model(),
    'one_bit_adam:warm_up=3+sign',
    num_workers=2,
    optimizer='gd',
  )
  features, labels = small.data(32)
  batch = features.reshape(2, 16, -1), labels.astype(np.int32).reshape(2, 16)
  bits, losses = [], []
  for _ in range(30):
    result = trainer.step(*batch, learning_rate=0.01)
    bits.append(trainer.bits_per_element(result))
    losses.append(np.mean(result.entropy))
  assert min(bits[:3]) >= 32 > max(bits[3:])
  assert losses[-1] < 0.8 * losses[3] < losses[0]
