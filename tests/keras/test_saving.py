"""What codes remember is saved with the model; a fit goes on to equal bits."""

import json

import keras
import numpy as np
import pytest

import terngrad.keras
from tests.keras import small

pytestmark = small.ARRAYS_OF_KERAS

POWER = 'error_feedback+powersgd:rank=1,min_compression=0.5'


def same(first, second):
  small.assert_equal(small.weights(first), small.weights(second))


@pytest.mark.parametrize(
  'replicas', [1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_a_loaded_model_goes_on_to_the_same_bits(tmp_path, replicas):
  whole = small.compiled(small.FEEDBACK, replicas)
  small.fit(whole, epochs=2)
  first = small.compiled(small.FEEDBACK, replicas)
  small.fit(first, epochs=1)
  first.save(tmp_path / 'a.keras')
  with small.strategy(replicas).scope():
    second = keras.models.load_model(tmp_path / 'a.keras')
  same(first, second)
  small.fit(second, epochs=1)
  same(whole, second)


@pytest.mark.slow
def test_states_that_were_not_used_since_are_saved_again(tmp_path):
  first = small.compiled(POWER)
  small.fit(first, epochs=1)
  first.save_weights(tmp_path / 'a.weights.h5')
  second = small.compiled(POWER)
  second.optimizer.build(second.trainable_variables)
  second.load_weights(tmp_path / 'a.weights.h5')
  second.save(tmp_path / 'b.keras')
  same(first, keras.models.load_model(tmp_path / 'b.keras'))


class Killed(Exception):
  """What ends a fit in the middle."""


class Kill(keras.callbacks.Callback):
  def on_epoch_begin(self, epoch, logs=None):
    if epoch == 2:
      raise Killed


@pytest.mark.slow
def test_a_killed_fit_goes_on_to_the_same_bits(tmp_path):
  whole = small.compiled(small.FEEDBACK)
  small.fit(whole, epochs=3)

  def backup():
    return keras.callbacks.BackupAndRestore(tmp_path / 'backup')

  killed = small.compiled(small.FEEDBACK)
  with pytest.raises(Killed):
    small.fit(killed, epochs=3, callbacks=[backup(), Kill()])
  again = small.compiled(small.FEEDBACK)
  small.fit(again, epochs=3, callbacks=[backup()])
  same(whole, again)


def test_weights_saved_without_the_wrapper_load_with_it_and_back(tmp_path):
  plain = small.compiled(None)
  small.fit(plain, epochs=1)
  plain.save_weights(tmp_path / 'plain.weights.h5')
  coded = small.compiled('ternary')
  coded.optimizer.build(coded.trainable_variables)
  coded.load_weights(tmp_path / 'plain.weights.h5')
  small.assert_equal(
    [v.numpy() for v in coded.optimizer.variables],
    [v.numpy() for v in plain.optimizer.variables],
  )
  coded.save_weights(tmp_path / 'coded.weights.h5')
  other = small.compiled(None)
  other.optimizer.build(other.trainable_variables)
  other.load_weights(tmp_path / 'coded.weights.h5')
  same(other, plain)


@pytest.mark.slow
def test_another_number_of_replicas_gets_the_mean(tmp_path, caplog):
  two = small.compiled(small.FEEDBACK, replicas=2)
  small.fit(two, epochs=1)
  two.save(tmp_path / 'two.keras')
  saved = two.optimizer.compressor.saved()
  one = keras.models.load_model(tmp_path / 'two.keras')
  small.fit(one, epochs=1, steps_per_epoch=1)
  told = [r for r in caplog.records if 'States of 2 of 2 workers' in r.message]
  assert len(told) == 1
  again = keras.models.load_model(tmp_path / 'two.keras').optimizer.compressor
  small.assert_equal(
    [again.saved()[name] for name in sorted(saved)],
    [saved[name] for name in sorted(saved)],
  )
  kept = one.optimizer.compressor.saved()['residual:0']
  assert kept.shape == (1, *saved['residual:0'].shape[1:])


def test_the_mean_of_all_rows_is_what_another_number_gets():
  rows = np.arange(6, dtype=np.float32).reshape(2, 3)
  variable = keras.Variable(np.zeros(3, np.float32))
  optimizer = terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(1.0), 'error_feedback+identity'
  )
  optimizer.build([variable])
  optimizer.compressor.load({'residual:0': rows, 'workers': [0, 2, 2]})
  optimizer.apply([np.zeros(3, np.float32)], [variable])
  np.testing.assert_array_equal(variable.numpy(), -rows.mean(axis=0))


def test_the_configuration_makes_the_same_optimizer():
  rules = {'kernel': 'ternary:clip_factor=2', '': 'identity'}
  made = terngrad.keras.CompressedOptimizer(
    keras.optimizers.AdamW(0.5, weight_decay=0.25), rules, seed=9, name='mine'
  )
  config = keras.saving.serialize_keras_object(made)
  assert json.loads(json.dumps(config)) == config
  again = keras.saving.deserialize_keras_object(config)
  assert keras.saving.serialize_keras_object(again) == config
  assert again.inner_optimizer.weight_decay == 0.25
  assert (again.compressor.codec, again.compressor.seed) == (rules, 9)
