"""`ExperimentLogger` records the logs of `fit` at the optimizer's steps."""

import types

import keras
import numpy as np
import pytest

import terngrad.keras
from terngrad.keras import saved_states
from terngrad.tracking import trackers
from terngrad.training import records
from tests.keras import small

pytestmark = small.ARRAYS_OF_KERAS


def fit(folder, model=None, epochs=1, callbacks=(), later=(), **options):
  if model is None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    rule = terngrad.keras.CompressedOptimizer('sgd', 'ternary')
    model.compile(rule, 'mse', run_eagerly=True)
  log = terngrad.keras.ExperimentLogger(folder, **{'every': 2} | options)
  data = np.ones([16, 3], np.float32), np.ones([16, 1], np.float32)
  callbacks = [*callbacks, log, *later]
  try:
    history = model.fit(
      *data, 4, epochs, verbose=0, shuffle=False, callbacks=callbacks
    )
  finally:
    # Not called by Keras if `fit` raises.
    log.on_train_end()
  return model, history.history


def test_records_have_the_names_of_the_logs_and_the_optimizers_steps(tmp_path):
  figures = terngrad.keras.CompressionMetrics()
  model, history = fit(tmp_path, epochs=2, callbacks=[figures])
  found = records.read(tmp_path)
  assert [r['step'] for r in found] == [2, 4, 4, 6, 8, 8]
  ends = [r for r in found if 'epoch' in r]
  assert [r['epoch'] for r in ends] == [1, 2]
  for name in ('loss', 'bits_per_element'):
    np.testing.assert_allclose([r[name] for r in ends], history[name])
  assert list(tmp_path.glob('events.*'))
  # A second fit continues; one of a new model writes its steps again.
  fit(tmp_path, model)
  assert records.read(tmp_path)[-1]['step'] == 12
  fit(tmp_path, log_to='')
  assert [r['step'] for r in records.read(tmp_path)] == [2, 4, 4]


def test_an_interrupted_run_keeps_its_records_before_its_backup(tmp_path):
  def stop(epoch, logs):
    if epoch == 1:
      raise KeyboardInterrupt

  def backup():
    return keras.callbacks.BackupAndRestore(tmp_path / 'backup')

  with pytest.raises(KeyboardInterrupt):
    stops = keras.callbacks.LambdaCallback(on_epoch_begin=stop)
    fit(tmp_path, epochs=2, later=[backup(), stops], log_to='')
  fit(tmp_path, epochs=2, later=[backup()], log_to='')
  steps = [r['step'] for r in records.read(tmp_path)]
  assert steps == [2, 4, 4, 6, 8, 8]


@pytest.mark.parametrize('rank', [0, 1])
def test_of_processes_with_local_steps_only_the_first_one_writes(
  tmp_path, rank
):
  model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
  model.compile('sgd', 'mse', run_eagerly=True)
  steps = types.SimpleNamespace(rank=rank)
  setattr(model, saved_states.ATTRIBUTE, saved_states.SavedStates(steps))
  fit(tmp_path / 'run', model)
  assert (tmp_path / 'run').exists() == (rank == 0)


def test_a_metric_with_several_values_has_a_record_for_each(tmp_path):
  model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
  scores = keras.metrics.F1Score(threshold=0.5, name='score')
  model.compile('sgd', 'mse', metrics=[scores, 'mae'], run_eagerly=True)
  _, history = fit(tmp_path, model)
  last = records.read(tmp_path)[-1]
  assert last['score/0'] == pytest.approx(history['score'][-1][0])
  assert last['mae'] == pytest.approx(history['mae'][-1])


def test_records_are_at_least_every_steps_apart_in_any_execution(tmp_path):
  model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
  model.compile('sgd', 'mse', steps_per_execution=4)
  x = np.ones([40, 3], np.float32)
  figures = terngrad.keras.ExperimentLogger(tmp_path, log_to='', every=10)
  model.fit(x, x[:, :1], 1, verbose=0, callbacks=[figures])
  steps = [r['step'] for r in records.read(tmp_path)]
  assert steps == [12, 24, 36, 40]


def test_only_the_chief_writes(tmp_path):
  log = terngrad.keras.ExperimentLogger(tmp_path / 'run')
  extended = types.SimpleNamespace(should_save_summary=False)
  strategy = types.SimpleNamespace(extended=extended)
  log.set_model(types.SimpleNamespace(distribute_strategy=strategy))
  log.on_train_begin()
  log.on_epoch_begin(0)
  log.on_train_batch_end(9, {'loss': 1.0})
  log.on_epoch_end(0, {'loss': 1.0})
  log.on_train_end()
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'every': 0}, 'every: expected a whole number, .* received 0'),
    ({'every': float('nan')}, 'every: expected a whole .* received nan'),
    ({'every': '3'}, "every: expected a whole number, .* received '3'"),
    ({'log_to': 'comet'}, 'log_to: expected names of tensorboard'),
    ({'log_to': ['mlflow']}, r'pip install .*\[mlflow]'),
  ],
)
def test_wrong_arguments_are_refused_at_once(
  tmp_path, monkeypatch, options, message
):
  monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
  with pytest.raises(ValueError, match=message):
    terngrad.keras.ExperimentLogger(tmp_path, **options)


def test_log_to_is_a_text_or_a_sequence(tmp_path, monkeypatch):
  seen = []
  monkeypatch.setattr(trackers, 'check_installed', seen.append)
  for names in ('tensorboard,wandb', ('tensorboard', 'wandb')):
    terngrad.keras.ExperimentLogger(tmp_path, names)
  assert [list(each) for each in seen] == [['tensorboard', 'wandb']] * 2
