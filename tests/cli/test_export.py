"""Nets that leave terngrad: Keras files, SavedModels and ONNX files."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import trained
from terngrad.cli import command
from terngrad.cli import export
from terngrad.cli import flags
from tests.checkpoint import test_pretrained

SIZE = test_pretrained.SIZE
# What Keras's file writer says on NumPy 2.
pytestmark = pytest.mark.filterwarnings(
  'ignore:__array__ implementation:DeprecationWarning'
)


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
  """The folder of a checkpoint of step 7."""
  folder = str(tmp_path_factory.mktemp('train'))
  run = test_pretrained.Started().run
  layout = run.layout._replace(may_change={'dataset_name': 'mnist'})
  writer = checkpoints.Writer(folder, layout, run.replicas, run.names)
  writer.save(7)
  return folder


def exported(checkpoint, path, **changes):
  """The exit code and the path."""
  values = {'checkpoint_dir': checkpoint, 'image_size': SIZE, 'output': path}
  words = [f'--{name}={value}' for name, value in (values | changes).items()]
  return command.run(export.COMMAND, 'export', words), path


def images():
  random = np.random.default_rng(5)
  return random.normal(size=(3, SIZE, SIZE, 1)).astype('float32')


def expected(checkpoint):
  options = trained.LoadOptions(checkpoint, SIZE, -1, True, '/cpu:0')
  return trained.probabilities(trained.load(options, 1).model, images()).numpy()


def test_a_keras_file_predicts_as_the_checkpoint(checkpoint, tmp_path, capsys):
  code, path = exported(checkpoint, tmp_path / 'new' / 'net.keras')
  assert code == 0
  assert f'after 7 steps, from float32 [n, {SIZE}, {SIZE}, 1] to ' in (
    capsys.readouterr().out
  )
  received = keras.models.load_model(path).predict(images(), verbose=0)
  np.testing.assert_allclose(received, expected(checkpoint), rtol=1e-5)
  np.testing.assert_allclose(received.sum(axis=1), 1, rtol=1e-5)
  assert os.listdir(tmp_path / 'new') == ['net.keras']


def test_a_saved_model_predicts_as_the_checkpoint(checkpoint, tmp_path):
  for _ in range(2):  # the second replaces the first
    code, path = exported(checkpoint, tmp_path / 'net', format='saved_model')
    assert code == 0
  loaded = tf.saved_model.load(str(path))
  np.testing.assert_allclose(
    loaded.serve(images()), expected(checkpoint), rtol=1e-5
  )
  assert os.listdir(tmp_path) == ['net']


# What Keras's converter asks NumPy for.
@pytest.mark.filterwarnings('ignore::FutureWarning')
def test_an_onnx_file_predicts_as_the_checkpoint(checkpoint, tmp_path):
  onnx = pytest.importorskip('onnx', reason='the extra onnx is not installed')
  pytest.importorskip('tf2onnx', reason='the extra onnx is not installed')
  from onnx import reference

  code, path = exported(checkpoint, tmp_path / 'net.onnx', format='onnx')
  assert code == 0
  model = onnx.load(path)
  (given,) = model.graph.input
  received = reference.ReferenceEvaluator(model).run(
    None, {given.name: images()}
  )
  np.testing.assert_allclose(received[0], expected(checkpoint), rtol=1e-4)


@pytest.mark.parametrize('kind', ['keras', 'saved_model'])
def test_a_folder_that_is_no_export_is_not_touched(
  checkpoint, tmp_path, capsys, kind
):
  path = tmp_path / ('net.keras' if kind == 'keras' else 'results')
  path.mkdir()
  (path / 'thesis.txt').write_text('years of work')
  code, _ = exported(checkpoint, path, format=kind)
  assert code == command.REFUSED
  assert 'a new name or an earlier export' in capsys.readouterr().err
  assert (path / 'thesis.txt').read_text() == 'years of work'
  assert os.listdir(tmp_path) == [path.name]
  # Nor one with files that were added, such as warm-up requests.
  (path / 'saved_model.pb').touch()
  assert exported(checkpoint, path, format=kind)[0] == command.REFUSED


def test_an_export_that_cannot_be_put_in_place_leaves_the_earlier_one(
  checkpoint, tmp_path, monkeypatch, capsys
):
  _, path = exported(checkpoint, tmp_path / 'net', format='saved_model')
  before = (path / 'saved_model.pb').stat().st_ino
  rename, calls = os.rename, []

  def refuse_second(*paths):
    calls.append(paths)
    if len(calls) == 2:
      raise OSError(28, 'No space left on device')
    rename(*paths)

  monkeypatch.setattr(os, 'rename', refuse_second)
  code, _ = exported(checkpoint, path, format='saved_model')
  assert code == command.REFUSED
  assert 'No space left on device' in capsys.readouterr().err
  assert (path / 'saved_model.pb').stat().st_ino == before


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'format': 'tflite'}, 'format: expected one of keras, onnx, saved_model'),
    ({'output': 'net.h5'}, '--output: expected a name that ends in .keras'),
    ({'output': ''}, '--output: expected a value'),
  ],
)
def test_flags_that_do_not_fit_are_refused(
  checkpoint, tmp_path, capsys, changes, message
):
  code, _ = exported(checkpoint, tmp_path / 'net.keras', **changes)
  assert code == command.REFUSED
  assert message in capsys.readouterr().err
  assert not os.listdir(tmp_path)


def test_onnx_names_the_packages_that_are_missing(monkeypatch):
  monkeypatch.setattr(export.importlib.util, 'find_spec', lambda name: None)
  values = export.ExportFlags(
    output='net.onnx', format='onnx', checkpoint_dir='x'
  )
  with pytest.raises(flags.UsageError, match=r'pip install .*\[onnx\]'):
    export.act(values)


def test_a_checkpoint_without_its_data_set_asks_for_the_flag(tmp_path, capsys):
  run = test_pretrained.Started().run
  layout = run.layout._replace(must_keep={}, may_change={}, dataset_name=None)
  writer = checkpoints.Writer(str(tmp_path), layout, run.replicas, run.names)
  writer.save(1)
  code, _ = exported(str(tmp_path), tmp_path / 'net.keras')
  assert code == command.REFUSED
  assert 'Give --dataset_name=NAME' in capsys.readouterr().err
  code, _ = exported(
    str(tmp_path), tmp_path / 'net.keras', dataset_name='mnist'
  )
  assert code == 0
