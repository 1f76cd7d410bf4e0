"""Figures of compression among the logs of a fit."""

import csv

import keras
import numpy as np
import pytest
import tensorflow as tf

import terngrad.keras
from terngrad.keras import metrics
from tests.keras import small

pytestmark = small.ARRAYS_OF_KERAS

NAMES = {'bits_per_element', 'compression_ratio', 'zeros', 'compression_error'}


def logged(codec, replicas=1, **fitting):
  made = small.compiled(codec, replicas, optimizer=keras.optimizers.SGD)
  callback = terngrad.keras.CompressionMetrics(every=1)
  history = small.fit(made, callbacks=[callback], **fitting)
  return {name: values for name, values in history.items() if name != 'loss'}


def test_float32_costs_32_bits_and_loses_nothing():
  found = logged('identity')
  assert set(found) == NAMES
  elements = sum(np.prod(v.shape) for v in small.model().trainable_variables)
  # A probe a variable.
  bits = 32 * (1 + 4 / elements)
  np.testing.assert_allclose(found['bits_per_element'], bits, rtol=1e-6)
  np.testing.assert_allclose(found['compression_ratio'], 32 / bits, rtol=1e-6)
  assert found['compression_error'] == [0, 0]


@pytest.mark.parametrize(
  'replicas', [1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_uncompressed_sparse_rows_are_counted(replicas):
  generator = np.random.default_rng(0)
  words = generator.integers(0, 100, size=(32, 6))
  with small.strategy(replicas).scope():
    made = keras.Sequential(
      [
        keras.Input((6,), dtype='int32'),
        keras.layers.Embedding(100, 8),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(3),
      ]
    )
    rule = terngrad.keras.CompressedOptimizer(keras.optimizers.SGD(), 'sign')
    made.compile(rule, 'mse', run_eagerly=replicas == 1)
  found = made.fit(
    words,
    generator.normal(size=(32, 3)),
    batch_size=16,
    verbose=0,
    callbacks=[terngrad.keras.CompressionMetrics()],
  ).history
  rows, coded = 16 // replicas * 6, 8 * 3 + 3
  # A word of signs, a scale and a probe for each of the two coded variables.
  bits = 32 * (rows * 8 + rows) + 2 * 3 * 32
  expected = bits / (rows * 8 + coded)
  np.testing.assert_allclose(found['bits_per_element'], expected, rtol=1e-6)
  np.testing.assert_allclose(
    found['compression_ratio'], 32 / expected, rtol=1e-6
  )


def test_the_residual_is_what_error_feedback_did_not_send():
  """One step: nothing was kept before, so the error is the residual."""
  made = small.compiled(
    small.FEEDBACK, optimizer=keras.optimizers.SGD, run_eagerly=True
  )
  callback = terngrad.keras.CompressionMetrics()
  (zeros, *_, error, residual) = (
    small.fit(
      made, epochs=1, steps_per_epoch=1, batch_size=48, callbacks=[callback]
    )[name][0]
    for name in ('zeros', 'compression_error', 'residual_norm')
  )
  saved = made.optimizer.compressor.get_states()
  left = np.concatenate([saved[f'residual:{i}'].ravel() for i in range(4)])
  np.testing.assert_allclose(residual, np.linalg.norm(left), rtol=1e-6)
  # ceil(ratio n) of 48, 8, 24 and 3 elements travel.
  assert zeros == pytest.approx(1 - (10 + 2 + 5 + 1) / 83)
  assert 0 < error < 1


def test_other_callbacks_and_the_progress_bar_get_the_figures(tmp_path, capsys):
  table = tmp_path / 'log.csv'
  made = small.compiled(
    'ternary', optimizer=keras.optimizers.SGD, run_eagerly=True
  )
  callbacks = [
    terngrad.keras.CompressionMetrics(every=1),
    keras.callbacks.CSVLogger(table),
    keras.callbacks.TensorBoard(tmp_path / 'events', update_freq='epoch'),
  ]
  small.fit(made, epochs=1, callbacks=callbacks, verbose=2)
  assert 'bits_per_element: ' in capsys.readouterr().out
  with open(table, newline='') as lines:
    (row,) = csv.DictReader(lines)
  assert NAMES <= set(row)
  assert float(row['zeros']) > 0.3
  (events,) = (tmp_path / 'events' / 'train').glob('events*')
  tags = {
    value.tag
    for event in tf.compat.v1.train.summary_iterator(str(events))
    for value in event.summary.value
  }
  assert 'epoch_bits_per_element' in tags


@pytest.mark.slow
def test_a_later_fit_computes_no_figures():
  made = small.compiled('ternary')
  small.fit(made, epochs=1, callbacks=[terngrad.keras.CompressionMetrics()])
  assert made.optimizer.compressor.observer is None
  assert set(small.fit(made, epochs=1)) == {'loss'}


@pytest.fixture(scope='module')
def fitted():
  """A model after a fit without the callback."""
  made = small.compiled('ternary')
  small.fit(made, epochs=1)
  return made


def test_an_evaluation_with_the_callback_leaves_no_observer(fitted):
  made = fitted
  step = made.train_function
  made.evaluate(*small.data(), callbacks=[terngrad.keras.CompressionMetrics()])
  assert made.optimizer.compressor.observer is None
  assert made.train_function is step


def test_a_second_fit_has_the_figures(fitted):
  callback = terngrad.keras.CompressionMetrics()
  history = small.fit(fitted, epochs=1, callbacks=[callback])
  assert {*history} >= NAMES


@pytest.mark.slow
def test_replicas_are_compared_with_their_exact_mean():
  found = logged('ternary', replicas=2)
  assert set(found) == NAMES
  assert all(0.1 < error < 3 for error in found['compression_error'])
  exact = logged('identity', replicas=2)
  assert exact['compression_error'] == [0, 0]


@pytest.mark.slow
def test_the_callback_does_not_change_the_training():
  with_figures = small.compiled(small.FEEDBACK)
  callback = terngrad.keras.CompressionMetrics()
  small.fit(with_figures, callbacks=[callback])
  without = small.compiled(small.FEEDBACK)
  small.fit(without)
  small.assert_equal(small.weights(with_figures), small.weights(without))


def test_another_optimizer_is_refused():
  made = small.compiled(None)
  with pytest.raises(ValueError, match='compiled with CompressedOptimizer'):
    small.fit(made, callbacks=[terngrad.keras.CompressionMetrics()])


def test_every_must_be_a_number_of_steps():
  with pytest.raises(ValueError, match='expected a whole number, 1 or more'):
    terngrad.keras.CompressionMetrics(every=0)


def test_a_step_without_rows_leaves_the_mean_of_the_others():
  means = metrics._Means()
  for bits, elements in ((0, 0), (64, 2)):
    means.add_bits(*(tf.constant(n, tf.float64) for n in (bits, elements)))
  assert means.results() == {'bits_per_element': 32, 'compression_ratio': 1}


def test_means_are_float32_for_any_dtype_of_the_model(monkeypatch):
  monkeypatch.setattr(keras.config, 'floatx', lambda: 'bfloat16')
  means = metrics._Means()
  assert {mean.dtype for mean in means._figures.values()} == {'float32'}


def test_updates_are_at_least_every_steps_apart_in_any_execution():
  model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
  rule = terngrad.keras.CompressedOptimizer('sgd', 'ternary')
  model.compile(rule, 'mse', steps_per_execution=4)
  figures, batches = terngrad.keras.CompressionMetrics(every=10), []

  def note(batch, logs):
    if 'zeros' in logs:
      batches.append(batch + 1)

  after = keras.callbacks.LambdaCallback(on_train_batch_end=note)
  x = np.ones([40, 3], np.float32)
  model.fit(x, x[:, :1], 1, verbose=0, callbacks=[figures, after])
  assert batches == [12, 24, 36]
