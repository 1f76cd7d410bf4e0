"""`fit` with local steps in two processes, on each backend of Keras."""

import importlib.util
import io
import json
import zipfile

import h5py
import keras
import numpy as np
import pytest

import terngrad.keras
from tests.exchange import processes
from tests.keras import small

PROGRAM = processes.ROOT / 'tests/keras/local_steps_process.py'


def backend(name, package, *marks):
  """A parameter that is skipped where the backend is not installed."""
  missing = importlib.util.find_spec(package) is None
  skip = pytest.mark.skipif(missing, reason=f'{package} is not installed')
  return pytest.param(name, marks=[skip, *marks])


JAX = backend('jax', 'jax')
BACKENDS = ['tensorflow', JAX, backend('torch', 'torch')]


def run(folder, name, count=2, codes=(0, 0), **request):
  """Trains; {name: array} of the files of each process that ended well."""
  hosts = processes.addresses(count)
  with processes.Processes() as started:
    for index in range(count):
      task = {'type': 'worker', 'index': index}
      started.start(
        *(PROGRAM, folder, json.dumps(request)),
        KERAS_BACKEND=name,
        TF_CONFIG=json.dumps({'cluster': {'worker': hosts}, 'task': task}),
      )
    ended = started.wait()
  for one, code in zip(ended, codes, strict=True):
    assert one.code == code, one.log
  return [
    weights(folder / f'{rank}.keras')
    for rank, code in enumerate(codes)
    if code == 0
  ]


def weights(path):
  """{name: array} of a model's file."""
  found = {}

  def add(name, entry):
    if isinstance(entry, h5py.Dataset):
      found[name] = entry[...]

  with zipfile.ZipFile(path) as archive:
    content = io.BytesIO(archive.read('model.weights.h5'))
  with h5py.File(content) as file:
    file.visititems(add)
  return found


def assert_equal(first, second, prefix):
  names = [name for name in first if name.startswith(prefix)]
  assert names
  for name in names:
    np.testing.assert_array_equal(first[name], second[name], err_msg=name)


# In the fast gate tests/local has two processes, and one process is here.
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('name', [JAX])
def test_two_processes_end_with_equal_parameters_and_statistics(tmp_path, name):
  first, second = run(
    tmp_path, name, normalize=True, options={'overlap': 'delayed'}
  )
  assert_equal(first, second, 'layers/')
  assert any('batch_normalization' in name for name in first)
  # The states of the outer optimizer and of the code are in the file too.
  assert_equal(first, second, 'local_steps/vars/slot.momentum')
  residual = 'local_steps/vars/codec.residual:0'
  assert not np.array_equal(first[residual], second[residual])


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('name', BACKENDS)
def test_a_killed_program_continues_to_the_same_bits(tmp_path, name):
  killed_at(tmp_path, name, 2)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('name', [JAX])
def test_a_program_killed_after_its_last_epoch_exchanges_the_last_steps(
  tmp_path, name
):
  killed_at(tmp_path, name, 3, options={'every': 4})


def killed_at(folder, name, epoch, **request):
  """Compares a run that was killed and started again with a whole one."""
  whole = run(folder / 'whole', name, **request)
  assert_equal(*whole, 'layers/')
  killed = folder / 'killed'
  kill = [0, 1, epoch]
  assert run(killed, name, codes=(-9, -9), kill=kill, **request) == []
  for one, other in zip(whole, run(killed, name, **request), strict=True):
    assert_equal(one, other, '')


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('name', [JAX])
def test_fit_after_an_interrupted_one_continues_to_the_same_bits(
  tmp_path, name
):
  # The interrupt comes during an exchange, and after two local steps.
  request = {'options': {'every': 4, 'overlap': 'delayed'}}
  whole = run(tmp_path / 'whole', name, **request)
  again = run(tmp_path / 'again', name, interrupt=1, **request)
  for one, other in zip(whole, again, strict=True):
    assert_equal(one, other, '')


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('name', BACKENDS)
def test_the_other_process_continues_without_a_killed_one(tmp_path, name):
  options = {'on_lost_worker': 'continue'}
  (last,) = run(tmp_path, name, codes=(-9, 0), kill=[0, 2], options=options)
  assert int(last['local_steps/vars/exchanges']) == 6


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('name', [JAX])
def test_a_saved_model_continues_with_its_states(tmp_path, name):
  before = run(tmp_path, name)
  after = run(tmp_path, name, resume=True)
  assert_equal(*after, 'layers/')
  for first, second in zip(before, after, strict=True):
    counts = [int(one['local_steps/vars/exchanges']) for one in (first, second)]
    assert counts == [6, 12]


def test_an_unknown_choice_for_statistics_is_refused():
  with pytest.raises(ValueError, match="average, keep, received 'sum'"):
    terngrad.keras.LocalSteps(10, statistics='sum')


class CompleteToZeros:
  """Has no helper; `complete` returns zeros for what it gets."""

  options = figures = None
  has_started = False

  def start(self, parameters, statistics, names):
    del names
    self.has_started = True
    return [*parameters, *statistics]

  def count_step(self, count):
    return False

  def complete(self, parameters, statistics):
    self.completed = parameters
    return [np.zeros_like(value) for value in (*parameters, *statistics)]

  def get_states(self):
    return {'exchanges': 1}

  def load(self, states):
    self.loaded = states

  def reset_figures(self):
    self.figures = {}


class Weights(keras.callbacks.Callback):
  """The trained weights after the last batch."""

  def on_train_batch_end(self, batch, logs=None):
    self.last = self.model.get_weights()


def fitted(before=(), steps=(), **options):
  """A model, trained with callbacks before `LocalSteps`; and `Weights`."""
  made = small.compiled(
    None,
    optimizer=lambda: keras.optimizers.SGD(2.0, **options),
    run_eagerly=True,
  )
  weights = Weights()
  small.fit(made, epochs=5, callbacks=[*before(), *steps, weights])
  return made.get_weights(), weights.last


def best_weights():
  return [
    keras.callbacks.EarlyStopping('loss', patience=1, restore_best_weights=True)
  ]


@small.ARRAYS_OF_KERAS
@pytest.mark.parametrize(
  ('before', 'options'),
  [(list, {'use_ema': True, 'ema_momentum': 0.5}), (best_weights, {})],
)
def test_weights_that_keras_sets_at_the_end_stay_and_are_not_exchanged(
  before, options
):
  expected, trained = fitted(before, **options)
  assert any((a != b).any() for a, b in zip(expected, trained, strict=True))
  steps = terngrad.keras.LocalSteps(10)
  steps._steps = CompleteToZeros()
  found, _ = fitted(before, [steps], **options)
  small.assert_equal(found, expected)
  small.assert_equal(steps._steps.completed, trained)
  assert steps._steps.loaded == {'exchanges': 1}


@small.ARRAYS_OF_KERAS
def test_the_model_takes_the_completed_parameters():
  steps = terngrad.keras.LocalSteps(10)
  steps._steps = CompleteToZeros()
  found, _ = fitted(list, [steps])
  assert not any(map(np.any, found))


@pytest.mark.parametrize('value', [7, keras.layers.Dense(2)])
def test_an_attribute_of_the_model_is_not_replaced(value):
  made = small.compiled(None)
  made.local_steps = value
  with pytest.raises(ValueError, match='none with an attribute local_steps'):
    small.fit(made, callbacks=[terngrad.keras.LocalSteps(1)])
  assert made.local_steps is value


@keras.saving.register_keras_serializable()
class Tuned(keras.Model):
  """A model whose head is built in the first batch, as in fine-tuning."""

  def __init__(self, backbone):
    super().__init__()
    self.backbone, self.head = backbone, keras.layers.Dense(4)

  def call(self, inputs):
    return self.head(self.backbone(inputs))


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: keras.Sequential([keras.layers.Dense(4)]), 'without trainable'),
    (lambda: Tuned(small.model()), 'that made .*dense.*kernel in `fit`'),
  ],
)
@small.ARRAYS_OF_KERAS
def test_parameters_that_the_first_batch_makes_are_refused(make, message):
  made = make()
  made.compile(
    'sgd',
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    run_eagerly=True,
  )
  steps = terngrad.keras.LocalSteps(1)
  # It would start a process, which does not see what is refused.
  steps._steps = CompleteToZeros()
  with pytest.raises(ValueError, match=message):
    small.fit(made, callbacks=[steps])


@small.ARRAYS_OF_KERAS
def test_fit_without_an_epoch_left_joins_and_completes():
  made = small.compiled(None)
  weights = made.get_weights()
  steps = terngrad.keras.LocalSteps(10)
  steps._steps = CompleteToZeros()
  small.fit(made, epochs=3, initial_epoch=3, callbacks=[steps])
  assert steps._steps.has_started
  small.assert_equal(steps._steps.completed, weights)


def normalized():
  """A model with moving statistics, which `CompleteToZeros` may set to 0."""
  keras.utils.set_random_seed(1)
  made = keras.Sequential(
    [
      keras.Input((small.FEATURES,)),
      keras.layers.BatchNormalization(momentum=0.5),
      keras.layers.Dense(small.CLASSES),
    ]
  )
  loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  made.compile('sgd', loss, run_eagerly=True)
  return made


@small.ARRAYS_OF_KERAS
@pytest.mark.parametrize('statistics', ['average', 'keep'])
def test_kept_statistics_are_not_exchanged(statistics):
  made = normalized()
  steps = terngrad.keras.LocalSteps(10, statistics=statistics)
  steps._steps = CompleteToZeros()
  small.fit(made, callbacks=[steps])
  assert not any(map(np.any, made.trainable_variables))
  moved = [*map(np.any, made.layers[0].non_trainable_variables)]
  assert moved == [statistics == 'keep'] * 2


@small.ARRAYS_OF_KERAS
def test_resuming_loads_weights_and_states_once(tmp_path):
  def resumed(path=''):
    steps = terngrad.keras.LocalSteps(10, resume_from=path)
    steps._steps = CompleteToZeros()
    return steps

  first = normalized()
  small.fit(first, callbacks=[resumed()])
  # Not those with which another process begins.
  first.layers[1].bias.assign([1.0, 2.0, 3.0])
  first.save(tmp_path / 'model.keras')
  second, steps = normalized(), resumed(tmp_path / 'model.keras')
  small.fit(second, epochs=3, initial_epoch=3, callbacks=[steps])
  assert steps._steps.loaded == {'exchanges': 1}
  trained = [v.numpy() for v in first.trainable_variables]
  small.assert_equal(steps._steps.completed, trained)
  # The next `fit` goes on from its own weights.
  small.fit(second, epochs=3, initial_epoch=3, callbacks=[steps])
  assert not any(map(np.any, steps._steps.completed))


class Restore(keras.callbacks.Callback):
  """Sets weights when training begins, as `BackupAndRestore` does."""

  def on_train_begin(self, logs=None):
    self.model.layers[1].bias.assign([7.0, 8.0, 9.0])


@small.ARRAYS_OF_KERAS
def test_weights_of_a_backup_are_newer_than_those_to_resume_from(tmp_path):
  first = normalized()
  first.save_weights(tmp_path / 'first.weights.h5')
  steps = terngrad.keras.LocalSteps(
    10, resume_from=tmp_path / 'first.weights.h5'
  )
  steps._steps = CompleteToZeros()
  made = normalized()
  small.fit(made, epochs=3, initial_epoch=3, callbacks=[Restore(), steps])
  assert [*steps._steps.completed[-1]] == [7.0, 8.0, 9.0]
