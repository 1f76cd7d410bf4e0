import json

import numpy as np
import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import sources
from terngrad.step import replicas
from tests.step import small


def layout(places=(0, 1), net='small'):
  return checkpoints.Layout(net, 5, 'momentum', 2, 4, list(places), 100)


def opened(folder, places=(0, 1)):
  """A training of two devices and its writer."""
  training = small.Training(
    small.dense_net, devices=2, workers=2, codec='identity'
  )
  names = replicas.variable_names(training.plan, training.replicas[0])
  writer = checkpoints.Writer(
    str(folder), layout(places), training.replicas, names
  )
  return training, names, writer


@pytest.mark.usefixtures('eager_functions')
def test_saved_variables_are_restored_bit_for_bit(tmp_path):
  training, names, writer = opened(tmp_path)
  training.run(2)
  saved = training.values()
  path = writer.save(2)
  assert path.endswith('model.ckpt-2')
  training.run(1, first=2)
  assert (training.values() != saved).any()
  variables = dict(zip(names, training.replicas[1].variables(), strict=True))
  checkpoints.restore(path, 0, variables)
  np.testing.assert_array_equal(training.values(1), saved)
  assert checkpoints.step_of(path) == 2
  assert checkpoints.read_layout(path) == layout()


def test_fields_that_older_checkpoints_lack_have_the_former_defaults():
  older = layout()
  assert older.dtype == 'float32'
  assert older.bn_statistics == 'averaged'
  assert older.trainable_scopes == ''


def test_the_newest_five_are_kept(tmp_path):
  _, _, writer = opened(tmp_path)
  for step in range(1, 8):
    writer.save(step)
  kept = sorted(path.name for path in tmp_path.glob('*.index'))
  assert kept == [f'model.ckpt-{step}.index' for step in range(3, 8)]
  assert checkpoints.newest(str(tmp_path)).endswith('model.ckpt-7')


def test_an_unreadable_checkpoint_is_skipped_for_the_one_before(tmp_path):
  _, _, writer = opened(tmp_path)
  writer.save(1)
  writer.save(2)
  (tmp_path / 'model.ckpt-2.index').write_bytes(b'torn')
  assert checkpoints.newest(str(tmp_path)).endswith('model.ckpt-1')


def test_a_truncated_checkpoint_is_skipped_too(tmp_path):
  _, _, writer = opened(tmp_path)
  writer.save(1)
  writer.save(2)
  data = tmp_path / 'model.ckpt-2.data-00000-of-00001'
  data.write_bytes(data.read_bytes()[:-100])
  assert checkpoints.newest(str(tmp_path)).endswith('model.ckpt-1')


def test_a_folder_of_damaged_or_unknown_checkpoints_is_not_empty(tmp_path):
  checkpoints.check_empty(str(tmp_path / 'none'))
  checkpoints.check_empty(str(tmp_path))
  tf.train.Checkpoint(a=tf.Variable(1.0)).save(str(tmp_path / 'other'))
  assert checkpoints.newest(str(tmp_path)) is None
  with pytest.raises(errors.CheckpointError, match='or give --overwrite'):
    checkpoints.check_empty(str(tmp_path))


def test_replicas_that_differ_are_not_saved(tmp_path):
  training, _, writer = opened(tmp_path)
  training.replicas[1].trainable[0].assign_add(
    tf.ones_like(training.replicas[1].trainable[0])
  )
  with pytest.raises(errors.TrainingError, match='expected fc/kernel'):
    writer.save(1)
  assert checkpoints.newest(str(tmp_path)) is None


def test_values_that_are_not_finite_are_not_saved(tmp_path):
  training, _, writer = opened(tmp_path)
  for replica in training.replicas:
    replica.trainable[0].assign(np.nan * replica.trainable[0])
  with pytest.raises(errors.TrainingError, match='finite numbers.*fc/kernel'):
    writer.save(1)
  assert checkpoints.newest(str(tmp_path)) is None


@pytest.mark.parametrize(('places', 'missing'), [((0,), 1), ((1,), 0)])
def test_a_device_that_was_not_stored_is_refused(tmp_path, places, missing):
  training, names, writer = opened(tmp_path, places)
  path = writer.save(1)
  variables = dict(zip(names, training.replicas[0].variables(), strict=True))
  checkpoints.restore(path, places[0], variables)
  with pytest.raises(errors.CheckpointError, match='expected fc/kernel'):
    checkpoints.restore(path, missing, variables)


def test_a_variable_of_another_shape_is_named(tmp_path):
  _, _, writer = opened(tmp_path)
  path = writer.save(1)
  other = {'fc/kernel': tf.Variable(tf.zeros([3, 3]))}
  with pytest.raises(
    errors.CheckpointError, match=r'fc/kernel of .* shape \[3, 3\].*\[64, 12\]'
  ):
    checkpoints.restore(path, 0, other)


def test_a_variable_of_another_dtype_is_named(tmp_path):
  _, _, writer = opened(tmp_path)
  path = writer.save(1)
  other = {'fc/kernel': tf.Variable(tf.zeros([64, 12], tf.int32))}
  with pytest.raises(
    errors.CheckpointError, match=r'fc/kernel of dtype int32 .* dtype float32'
  ):
    checkpoints.restore(path, 0, other)


def test_nothing_is_restored_if_one_variable_does_not_fit(tmp_path):
  training, names, writer = opened(tmp_path)
  path = writer.save(1)
  variables = dict(zip(names, training.replicas[0].variables(), strict=True))
  training.run(1)
  before = training.values()
  variables['another'] = tf.Variable(0.0)
  with pytest.raises(
    errors.CheckpointError, match='expected another of dtype float32 and shape'
  ):
    checkpoints.restore(path, 0, variables)
  np.testing.assert_array_equal(training.values(), before)


def test_values_that_cannot_be_read_are_one_line(tmp_path):
  training, names, writer = opened(tmp_path)
  path = writer.save(1)
  variables = dict(zip(names, training.replicas[0].variables(), strict=True))
  (tmp_path / 'model.ckpt-1.data-00000-of-00001').write_bytes(b'cut')
  message = 'that can be read, rec'
  with pytest.raises(errors.CheckpointError, match=message):
    checkpoints.restore(path, 0, variables)
  with pytest.raises(errors.CheckpointError, match=message):
    checkpoints.step_of(path)


@pytest.mark.parametrize('size', [0, 40])
def test_a_truncated_checkpoint_is_refused_by_all_readers(size, tmp_path):
  _, _, writer = opened(tmp_path)
  path = writer.save(1)
  (data,) = tmp_path.glob('*.data-*')
  data.write_bytes(data.read_bytes()[:size])
  with pytest.raises(errors.CheckpointError, match='layout that can be read'):
    checkpoints.read_layout(path)
  with pytest.raises(errors.CheckpointError, match=path):
    source = sources.open_checkpoint(path, 'lenet')
    for name in source.shapes:
      source.read(name)


def test_another_net_is_refused_by_name(tmp_path):
  with pytest.raises(
    errors.CheckpointError, match='with net lenet, received one with small'
  ):
    checkpoints.check_layout('there', layout(), {'net': 'lenet'})


def test_a_checkpoint_of_another_program_is_refused(tmp_path):
  path = tf.train.Checkpoint(a=tf.Variable(1.0)).save(str(tmp_path / 'other'))
  with pytest.raises(errors.CheckpointError, match='without a layout'):
    checkpoints.read_layout(path)


@pytest.mark.parametrize(
  'changed',
  [
    {'places': []},
    {'places': [2]},
    {'places': [[0]]},
    {'places': 0},
    {'num_devices': 0},
    {'num_workers': 2**60},
    {'num_workers': 1.5},
    {'net': ['lenet']},
    {'must_keep': 'seed'},
    {'must_keep': {'image_size': '24'}},
    {'must_keep': {'image_size': 2**40}},
    {'must_keep': {'seed': {'a': 1}}},
    {'may_change': {'labels_offset': [1]}},
    {'may_change': {'codec': 7}},
    {'may_change': {'preprocessing': None}},
    {'unknown': 1},
  ],
)
def test_a_layout_with_impossible_values_is_refused(changed, tmp_path):
  text = json.dumps(layout()._asdict() | changed)
  # As `Writer` stores it.
  stored = tf.train.Checkpoint(layout=tf.Variable(text))
  path = stored.write(str(tmp_path / 'model.ckpt-1'))
  with pytest.raises(errors.CheckpointError, match='layout that can be read'):
    checkpoints.read_layout(path)


def test_a_layout_that_is_nested_without_end_is_refused(tmp_path):
  stored = tf.train.Checkpoint(layout=tf.Variable('[' * 100_000))
  path = stored.write(str(tmp_path / 'model.ckpt-1'))
  with pytest.raises(errors.CheckpointError, match='layout that can be read'):
    checkpoints.read_layout(path)


def test_a_layout_of_an_older_version_is_read(tmp_path):
  needed = checkpoints.Layout._fields[:7]
  old = {name: getattr(layout(), name) for name in needed}
  stored = tf.train.Checkpoint(layout=tf.Variable(json.dumps(old)))
  path = stored.write(str(tmp_path / 'model.ckpt-1'))
  assert checkpoints.read_layout(path).dtype == 'float32'


def test_a_path_without_a_checkpoint_is_refused(tmp_path):
  for path in (tmp_path, tmp_path / 'model.ckpt-7'):
    with pytest.raises(errors.CheckpointError, match='received neither'):
      checkpoints.find(str(path))
