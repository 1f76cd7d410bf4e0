"""Keras files are loaded in safe mode, or refused in one line."""

import json
import zipfile

import keras
import pytest

import terngrad.keras
from terngrad import errors
from terngrad.measure.planning import saved_model
from tests.keras import small

pytestmark = small.ARRAYS_OF_KERAS


def net():
  return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def save(tmp_path, model):
  path = str(tmp_path / 'net.keras')
  if getattr(model, 'optimizer', None) is not None:
    # Keras warns of slots that a file lacks.
    model.optimizer.build(model.trainable_variables)
  model.save(path)
  return path


def test_a_step_of_a_file_is_timed_and_described(tmp_path):
  lines = []
  path = save(tmp_path, net())
  found = saved_model.measure(path, 8, 1, 60, lines.append)
  assert found.shapes == [(4, 2), (2,)]
  assert lines[0].endswith('net.keras, optimizer Adam, since the file has none')
  assert '10 parameters' in lines[1] and 'a step of 8 examples' in lines[1]


def test_accumulated_gradients_are_counted_in_every_step_and_named(tmp_path):
  lines, model = [], net()
  model.compile(keras.optimizers.SGD(gradient_accumulation_steps=4), 'mse')
  saved_model.measure(save(tmp_path, model), 8, 1, 60, lines.append)
  assert 'accumulates gradients over 4 steps' in lines[1]


def test_compression_and_loss_scales_are_removed_from_the_optimizer(tmp_path):
  model = net()
  inner = terngrad.keras.CompressedOptimizer(keras.optimizers.Lion(), 'ternary')
  model.compile(keras.optimizers.LossScaleOptimizer(inner), 'mse')
  _, optimizer, remark = saved_model.load(save(tmp_path, model))
  assert type(optimizer) is keras.optimizers.Lion
  assert remark == 'Lion'
  # Sums gradients as Keras does.
  assert '_all_reduce_sum_gradients' not in vars(optimizer)


def test_a_loss_that_is_unknown_here_is_not_needed(tmp_path):
  @keras.saving.register_keras_serializable('test_saved_model')
  def of_the_user(true, predicted):
    return keras.ops.mean(true - predicted)

  model = net()
  model.compile('sgd', of_the_user)
  path = save(tmp_path, model)
  registered = keras.saving.get_custom_objects()
  name = 'test_saved_model>of_the_user'
  del registered[name]
  loaded, _, remark = saved_model.load(path)
  assert loaded.count_params() == 10
  assert remark.startswith('Adam')


def test_code_in_a_file_is_refused(tmp_path):
  model = keras.Sequential(
    [keras.Input((4,)), keras.layers.Lambda(lambda x: x), keras.layers.Dense(2)]
  )
  path = save(tmp_path, model)
  with pytest.raises(errors.ConfigError, match='in safe mode') as caught:
    saved_model.load(path)
  assert '\n' not in str(caught.value)
  assert '--elements' in str(caught.value)


def test_a_class_that_is_unknown_here_is_named(tmp_path):
  path = save(tmp_path, net())
  with zipfile.ZipFile(path) as archive:
    files = {name: archive.read(name) for name in archive.namelist()}
  config = json.loads(files['config.json'])
  config['config']['layers'][1]['class_name'] = 'OfTheUser'
  files['config.json'] = json.dumps(config).encode()
  with zipfile.ZipFile(path, 'w') as archive:
    for name, content in files.items():
      archive.writestr(name, content)
  with pytest.raises(errors.ConfigError, match='OfTheUser'):
    saved_model.load(path)


@pytest.mark.parametrize(
  'name',
  ['missing.keras', 'folder.keras', 'net.h5', 'hf://a/b.keras', 'text.keras'],
)
def test_anything_but_a_keras_file_is_refused(tmp_path, name):
  (tmp_path / 'folder.keras').mkdir()
  (tmp_path / 'net.h5').touch()
  (tmp_path / 'text.keras').write_text('not an archive')
  path = name if '://' in name else str(tmp_path / name)
  with pytest.raises(errors.ConfigError, match='model: expected') as caught:
    saved_model.load(path)
  assert repr(path) in str(caught.value)
  assert "model.save('FILE.keras')" in str(caught.value)


def test_a_file_that_holds_no_model_is_refused(tmp_path):
  path = str(tmp_path / 'empty.keras')
  with zipfile.ZipFile(path, 'w') as archive:
    archive.writestr('config.json', '{}')
  with pytest.raises(errors.ConfigError, match='model: expected'):
    saved_model.load(path)
