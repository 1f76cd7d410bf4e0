"""What codes remember is saved with the model; a fit goes on to equal bits."""

import json

import h5py
import keras
import numpy as np
import pytest

import terngrad.keras
from tests import forked
from tests.keras import small

pytestmark = small.ARRAYS_OF_KERAS

# Draws, so that a continued run needs the right step.
DRAWN = 'error_feedback+ternary'
POWER = 'error_feedback+powersgd:rank=1,min_compression=0.5'


def same(first, second):
  small.assert_equal(small.weights(first), small.weights(second))


@pytest.mark.parametrize(
  'replicas', [1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_a_loaded_model_continues_with_the_same_bits(tmp_path, replicas):
  first = small.compiled(DRAWN, replicas, run_eagerly=replicas == 1)
  small.fit(first, epochs=1)
  first.save(tmp_path / 'a.keras')
  with small.strategy(replicas).scope():
    second = keras.models.load_model(tmp_path / 'a.keras')
  same(first, second)
  for made in (first, second):
    small.fit(made, epochs=1)
  same(first, second)


@pytest.mark.slow
def test_loaded_states_are_saved_again_before_their_first_use(tmp_path):
  first = small.compiled(POWER)
  small.fit(first, epochs=1)
  first.save_weights(tmp_path / 'a.weights.h5')
  second = small.compiled(POWER)
  second.optimizer.build(second.trainable_variables)
  second.load_weights(tmp_path / 'a.weights.h5')
  second.save(tmp_path / 'b.keras')
  same(first, keras.models.load_model(tmp_path / 'b.keras'))


@pytest.mark.slow
@pytest.mark.parametrize('codec', [None, small.FEEDBACK])
@pytest.mark.parametrize('replicas', [1, 2])
def test_dropout_continues_if_its_seeds_are_restored(tmp_path, codec, replicas):
  """Keras saves no seeds: without or with the wrapper."""

  def compiled():
    keras.utils.set_random_seed(1)
    with small.strategy(replicas).scope():
      made = keras.Sequential(
        [*small.model().layers, keras.layers.Dropout(0.5, seed=7)]
      )
      rule = keras.optimizers.Adam(0.01)
      if codec:
        rule = terngrad.keras.CompressedOptimizer(rule, codec)
      made.build((None, small.FEATURES))
      made.compile(
        rule, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
      )
    return made

  def seeds(made):
    return made.layers[-1].seed_generator.state

  whole, first = compiled(), compiled()
  small.fit(whole, epochs=2)
  small.fit(first, epochs=1)
  first.save(tmp_path / 'a.keras')
  with small.strategy(replicas).scope():
    second = keras.models.load_model(tmp_path / 'a.keras')
  assert np.any(seeds(second).numpy() != seeds(first).numpy())
  seeds(second).assign(seeds(first).numpy())
  small.fit(second, epochs=1)
  same(whole, second)


class Killed(Exception):
  """What ends a fit in the middle."""


class Kill(keras.callbacks.Callback):
  def on_epoch_begin(self, epoch, logs=None):
    if epoch == 2:
      raise Killed


@pytest.mark.slow
def test_a_killed_fit_continues_with_the_same_bits(tmp_path):
  whole = small.compiled(DRAWN)
  small.fit(whole, epochs=3)

  def backup():
    return keras.callbacks.BackupAndRestore(tmp_path / 'backup')

  killed = small.compiled(DRAWN)
  with pytest.raises(Killed):
    small.fit(killed, epochs=3, callbacks=[backup(), Kill()])
  again = small.compiled(DRAWN)
  small.fit(again, epochs=3, callbacks=[backup()])
  same(whole, again)


def test_weights_saved_without_the_wrapper_load_with_it_and_back(tmp_path):
  plain = small.compiled(None, run_eagerly=True)
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
def test_another_number_of_replicas_loads_the_mean_state(tmp_path, caplog):
  two = small.compiled(small.FEEDBACK, replicas=2)
  small.fit(two, epochs=1)
  two.save(tmp_path / 'two.keras')
  saved = two.optimizer.compressor.get_states()
  one = keras.models.load_model(tmp_path / 'two.keras')
  small.fit(one, epochs=1, steps_per_epoch=1)
  logged = [
    r for r in caplog.records if 'Codec states of 2 of 2 workers' in r.message
  ]
  assert len(logged) == 1
  again = keras.models.load_model(tmp_path / 'two.keras').optimizer.compressor
  small.assert_equal(
    [again.get_states()[name] for name in sorted(saved)],
    [saved[name] for name in sorted(saved)],
  )
  kept = one.optimizer.compressor.get_states()['residual:0']
  assert kept.shape == (1, *saved['residual:0'].shape[1:])


def test_another_number_of_workers_loads_the_mean_of_all_rows():
  rows = np.arange(6, dtype=np.float32).reshape(2, 3)
  variable = keras.Variable(np.zeros(3, np.float32))
  optimizer = terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(1.0), 'error_feedback+identity'
  )
  optimizer.build([variable])
  optimizer.compressor.load({'residual:0': rows, 'workers': [0, 2, 2]})
  optimizer.apply([np.zeros(3, np.float32)], [variable])
  np.testing.assert_array_equal(variable.numpy(), -rows.mean(axis=0))


SENDS_ALL = 'error_feedback+identity'


def file_of(names, shapes, codec='error_feedback+topk:ratio=0.01'):
  """What an optimizer writes after a step; the first residuals by name."""
  variables = [
    keras.Variable(np.zeros(shape, np.float32), name=name)
    for name, shape in zip(names, shapes, strict=True)
  ]
  optimizer = terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(1.0), codec
  )
  generator = np.random.default_rng(0)
  optimizer.apply(
    [generator.normal(size=shape).astype(np.float32) for shape in shapes],
    variables,
  )
  store = {}
  optimizer.save_own_variables(store)
  left = {n: store[f'state:residual:{i}'][0] for i, n in enumerate(names)}
  return store, left


def sent_after(store, names, shapes, codec=SENDS_ALL):
  """What a step without gradients takes off variables of zeros, by name."""
  variables = [
    keras.Variable(np.zeros(shape, np.float32), name=name)
    for name, shape in zip(names, shapes, strict=True)
  ]
  optimizer = terngrad.keras.CompressedOptimizer(
    keras.optimizers.SGD(1.0), codec
  )
  optimizer.build(variables)
  optimizer.load_own_variables(store)
  optimizer.apply([np.zeros(s, np.float32) for s in shapes], variables)
  return {n: -v.numpy() for n, v in zip(names, variables, strict=True)}


def dropped(caplog):
  return [r.getMessage() for r in caplog.records if 'dropped' in r.message]


class TestStatesOfAChangedModel:
  def test_unchanged_layers_load_states_and_others_start_from_zeros(
    self, caplog
  ):
    store, left = file_of(['base', 'middle', 'head'], [(6, 5), (6, 5), (6, 5)])
    now = ['middle', 'new', 'head']
    sent = sent_after(store, now, [(6, 5), (6, 5), (6, 4)])
    np.testing.assert_array_equal(sent['middle'], left['middle'])
    assert not sent['new'].any()
    assert not sent['head'].any()
    (message,) = dropped(caplog)
    assert 'base, head' in message

  def test_a_rebuilt_model_loads_all_states(self, caplog):
    store, left = file_of(['dense', 'dense_1'], [(6, 5), (6, 5)])
    sent = sent_after(store, ['dense_2', 'dense_3'], [(6, 5), (6, 5)])
    small.assert_equal(list(sent.values()), list(left.values()))
    assert not dropped(caplog)

  def test_another_rank_starts_with_new_matrices(self, caplog):
    power = 'error_feedback+powersgd:rank={},min_compression=0.1'
    store, left = file_of(['table'], [(6, 5)], power.format(1))
    sent = sent_after(store, ['table'], [(6, 5)], power.format(2))
    assert left['table'].any() and sent['table'].any()
    (message,) = dropped(caplog)
    assert 'table' in message

  def test_states_are_saved_again_under_the_present_indices(self):
    store, left = file_of(['a', 'b'], [(6, 5), (6, 5)])
    variable = keras.Variable(np.zeros((6, 5), np.float32), name='b')
    plain = terngrad.keras.CompressedOptimizer(
      keras.optimizers.SGD(1.0), 'identity'
    )
    plain.build([variable])
    plain.load_own_variables(store)
    plain.apply([np.zeros((6, 5), np.float32)], [variable])
    again = {}
    plain.save_own_variables(again)
    sent = sent_after(again, ['b'], [(6, 5)])
    np.testing.assert_array_equal(sent['b'], left['b'])

  @pytest.mark.parametrize(
    ('names', 'shapes', 'kept'),
    [
      (['a', 'b'], [(6, 5), (6, 5)], True),
      (['b'], [(6, 5)], False),
      (['a', 'b'], [(6, 5), (6, 4)], False),
    ],
  )
  def test_files_of_0_2_are_matched_by_index_or_dropped(
    self, names, shapes, kept, caplog
  ):
    store, left = file_of(['a', 'b'], [(6, 5), (6, 5)])
    del store['state:variables']
    sent = sent_after(store, names, shapes)
    for name in names:
      expected = left[name] if kept else np.zeros_like(sent[name])
      np.testing.assert_array_equal(sent[name], expected)
    assert len(dropped(caplog)) == (not kept)

  def test_weights_that_do_not_fit_are_skipped_as_keras_skips_them(
    self, tmp_path
  ):
    def momentum():
      return keras.optimizers.SGD(0.1, momentum=0.9)

    first = small.compiled(small.FEEDBACK, optimizer=momentum, run_eagerly=True)
    small.fit(first, epochs=1, steps_per_epoch=1)
    first.save_weights(tmp_path / 'a.weights.h5')
    left = first.optimizer.compressor.get_states()
    second = keras.Sequential(
      [
        keras.Input((small.FEATURES,)),
        keras.layers.Dense(8, 'tanh', name='hidden'),
        keras.layers.Dense(5, name='logits'),
      ]
    )
    optimizer = terngrad.keras.CompressedOptimizer(momentum(), small.FEEDBACK)
    second.compile(optimizer, 'mse')
    optimizer.build(second.trainable_variables)
    with pytest.warns(UserWarning, match='could not be loaded'):
      second.load_weights(tmp_path / 'a.weights.h5', skip_mismatch=True)
    shapes = [v.shape for v in second.trainable_variables]
    optimizer.apply(
      [np.zeros(shape, np.float32) for shape in shapes],
      second.trainable_variables,
    )
    now = [optimizer.compressor.get_states()[f'residual:{i}'] for i in range(4)]
    for number in range(2):
      # The largest were sent.
      unsent = now[number] != 0
      assert unsent.any()
      np.testing.assert_array_equal(
        now[number][unsent], left[f'residual:{number}'][unsent]
      )
    assert not now[2].any() and not now[3].any()


def test_the_configuration_creates_the_same_optimizer():
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


LOAD_WITHOUT_THE_IMPORT = """
import sys
import traceback
import h5py
import keras
for path in sys.argv[1:]:
  try:
    keras.models.load_model(path)
  except TypeError:
    traceback.print_exc()
"""


def test_keras_names_the_import_that_a_program_lacks(tmp_path):
  paths = [tmp_path / 'wrapped.keras', tmp_path / 'virtual.keras']
  small.compiled('ternary').save(paths[0])
  made = small.compiled(None)
  terngrad.keras.virtual_workers(made, 'ternary', 2).save(paths[1])
  done = forked.run(None, LOAD_WITHOUT_THE_IMPORT, *paths)
  assert done.returncode == 0, done.stderr
  lines = [x for x in done.stderr.splitlines() if 'Could not locate' in x]
  assert len(lines) == 2
  for line in lines:
    # Before the long configuration of the wrapped optimizer.
    assert 'import terngrad.keras' in line.partition("'optimizer'")[0]


def test_a_configuration_of_0_2_creates_an_optimizer():
  """It says neither what to import nor what to do with NaN."""
  made = terngrad.keras.CompressedOptimizer(keras.optimizers.SGD(0.5), 'fp16')
  config = keras.saving.serialize_keras_object(made)
  for name in ('to_load_it', 'on_not_finite'):
    del config['config'][name]
  again = keras.saving.deserialize_keras_object(config)
  assert (again.compressor.codec, again.on_not_finite) == ('fp16', 'skip')


def test_damaged_states_of_a_code_are_refused(tmp_path):
  model = small.compiled(DRAWN, run_eagerly=True)
  small.fit(model, epochs=1)
  path = tmp_path / 'a.weights.h5'
  model.save_weights(path)
  names = []
  with h5py.File(path, 'r+') as file:
    file.visit(names.append)
    (workers,) = [name for name in names if name.endswith('workers')]
    del file[workers]
    file[workers] = np.array([5, 1, 1])
  with pytest.raises(ValueError, match='Codec states: expected workers to be'):
    model.load_weights(path)
