"""`fit` with local steps in two processes, on each backend of Keras."""

import importlib.util
import io
import json
import zipfile

import h5py
import numpy as np
import pytest

import terngrad.keras
from tests.exchange import processes

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
  whole = run(tmp_path / 'whole', name)
  assert_equal(*whole, 'layers/')
  killed = tmp_path / 'killed'
  assert run(killed, name, codes=(-9, -9), kill=[0, 1, 2]) == []
  for one, other in zip(whole, run(killed, name), strict=True):
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
