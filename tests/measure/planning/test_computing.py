"""A step of a Keras model is timed with random examples."""

import itertools

import keras
import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.measure.planning import computing


def net(*layers, shape=(8,), dtype='float32'):
  return keras.Sequential(
    [keras.Input(shape, dtype=dtype), *layers], name='net'
  )


def words():
  """A net of an embedding of 50 words with 6 numbers, and a dense layer."""
  layers = keras.layers
  return net(
    layers.Embedding(50, 6, name='words'),
    layers.GlobalAveragePooling1D(),
    layers.Dense(3),
    shape=(5,),
    dtype='int32',
  )


def measure(model, optimizer=None, batch_size=4, rounds=1, seconds=60):
  optimizer = optimizer or keras.optimizers.SGD()
  return computing.measure(model, optimizer, batch_size, rounds, seconds)


def test_dense_variables_are_those_that_a_step_trains():
  frozen = keras.layers.Dense(7, trainable=False)
  model = net(keras.layers.Dense(5), frozen, keras.layers.BatchNormalization())
  found = measure(model, keras.optimizers.Adam())
  assert found.shapes == [(8, 5), (5,), (7,), (7,)]
  assert found.row_bytes == 0 and found.sparse == ()
  assert found.seconds > 0


def test_gradients_of_embeddings_are_rows_that_are_not_compressed():
  found = measure(words())
  assert found.shapes == [(6, 3), (3,)]
  assert found.sparse == ('net/words/embeddings',)
  # Four examples of five words: six float32 and an int32 for each.
  assert found.row_bytes == 4 * 5 * (6 * 4 + 4)
  text = computing.describe(found, 4)
  assert '21 parameters with dense gradients; a step of 4 examples' in text
  assert '560 bytes of sparse gradients a step, of net/words/embeddings' in text


@pytest.mark.parametrize(
  ('option', 'shapes'),
  [
    ({'clipnorm': 1.0}, [(6, 3), (3,)]),
    ({'global_clipnorm': 1.0}, [(50, 6), (6, 3), (3,)]),
    ({'gradient_accumulation_steps': 2}, [(50, 6), (6, 3), (3,)]),
  ],
)
def test_options_that_make_rows_dense_do_so_in_the_plan(option, shapes):
  found = measure(words(), keras.optimizers.SGD(**option))
  assert found.shapes == shapes


def test_inputs_and_outputs_may_be_nested():
  inputs = {name: keras.Input((4,), name=name) for name in ('b', 'a')}
  both = keras.layers.Concatenate()([*inputs.values()])
  outputs = {'x': keras.layers.Dense(2)(both), 'y': keras.layers.Dense(3)(both)}
  found = measure(keras.Model(inputs, outputs))
  assert found.shapes == [(8, 2), (2,), (8, 3), (3,)]


def test_integers_are_words_of_every_embedding():
  model = words()
  drawn = computing.synthetic_batch(model, 1000)
  assert drawn.dtype == tf.int32 and drawn.shape == (1000, 5)
  assert 0 == drawn.numpy().min() and drawn.numpy().max() == 49


def test_no_step_begins_when_the_time_is_over(monkeypatch):
  clock = itertools.count()
  monkeypatch.setattr(computing, '_now', lambda: float(next(clock)))
  monkeypatch.setattr(computing, '_FEWEST_ROUNDS', 2)
  calls = []
  monkeypatch.setattr(
    computing._SyntheticStep,
    '__call__',
    lambda self: calls.append(None) or [],
  )
  model = net(keras.layers.Dense(2))
  trained = lambda self: model.trainable_variables  # noqa: E731
  monkeypatch.setattr(
    computing._SyntheticStep,
    'dense',
    property(trained, lambda *_: None),
    raising=False,
  )
  found = measure(model, rounds=50, seconds=0)
  # One that compiles, and two that are timed.
  assert len(calls) == 3
  assert (found.seconds, found.spread) == (1.0, 0.0)


@pytest.mark.parametrize(
  'model',
  [
    net(keras.layers.Dense(2), shape=(None, 3)),
    net(
      keras.layers.TextVectorization(vocabulary=['a']), shape=(), dtype='string'
    ),
    keras.Sequential([keras.layers.Dense(2)]),
  ],
  ids=['unknown size', 'text', 'no inputs'],
)
def test_unknown_inputs_are_refused_with_a_remedy(model):
  with pytest.raises(errors.ConfigError, match='model: expected') as caught:
    measure(model)
  assert '--elements' in str(caught.value) and '--seconds' in str(caught.value)


def test_a_layer_that_refuses_the_examples_is_an_error_of_one_line():
  @keras.saving.register_keras_serializable('test_computing')
  class Refusing(keras.layers.Layer):
    def call(self, inputs, training=False):
      if training:
        raise RuntimeError('never\ntrained')
      return inputs

  with pytest.raises(errors.ConfigError, match='never') as caught:
    measure(net(Refusing()))
  assert '\n' not in str(caught.value)


def test_a_model_without_trainable_variables_is_refused():
  with pytest.raises(errors.ConfigError, match='at least one variable'):
    measure(net(keras.layers.Flatten()))
