"""predict_image on the checkpoint of a net that was made to know its answer."""

import re

import numpy as np
import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.cli import predict as predict_command
from tests.bin import programs
from tests.slim import image_files


@pytest.fixture
def knowing(one_tower, tmp_path):
  """A checkpoint that sees a 3 in everything: its bias says so."""
  source = one_tower / 'model.ckpt-2'
  reader = tf.train.load_checkpoint(str(source))

  def value(name, suffix):
    found = programs.variable(source, 1, name + suffix)
    if name == 'logits/bias':
      found = np.where(np.arange(10) == 3, 50.0, found).astype(np.float32)
    return tf.Variable(found)

  names = [
    f'{layer}/{part}'
    for layer in ('conv1', 'conv2', 'fc3', 'logits')
    for part in ('kernel', 'bias')
  ]
  layout = reader.get_tensor('layout/.ATTRIBUTES/VARIABLE_VALUE')
  tf.train.CheckpointManager(
    tf.train.Checkpoint(
      step=tf.Variable(7, dtype=tf.int64),
      layout=tf.Variable(layout.decode()),
      tower_1={
        name + suffix: value(name, suffix)
        for name in names
        for suffix in ('', '/average')
      },
    ),
    str(tmp_path / 'knowing'),
    max_to_keep=1,
    checkpoint_name='model.ckpt',
  ).save(checkpoint_number=7)
  return tmp_path / 'knowing'


@pytest.fixture
def image(tmp_path):
  path = tmp_path / 'a.png'
  path.write_bytes(image_files.saved(image_files.picture(), 'PNG'))
  return path


def predict(worker, checkpoint_dir, **values):
  usual = {'checkpoint_dir': checkpoint_dir, 'dataset_name': 'mnist'}
  return worker.run('predict_image', programs.as_flags(**(usual | values)))


def test_says_the_class_and_how_sure_it_is(worker, knowing, image, data_dir):
  done = predict(
    worker, knowing, images=f'{image},{image}', data_dir=data_dir, top=2
  )
  assert done.code == 0, done.err
  first, second = done.out.splitlines()
  assert first == second
  assert re.fullmatch(
    rf'{re.escape(str(image))}: three 100\.00 %, [a-z]+ \d+\.\d\d %', first
  )


def test_a_name_of_an_image_may_have_commas(worker, knowing, image):
  path = image.rename(image.with_name('a,b.png'))
  done = predict(worker, knowing, images=path, top=1)
  assert (done.code, done.out) == (0, f'{path}: 3 100.00 %\n'), done.err


def test_the_data_set_is_that_of_the_training(worker, knowing, image):
  done = predict(worker, knowing, images=image, top=1, dataset_name='')
  assert (done.code, done.out) == (0, f'{image}: 3 100.00 %\n'), done.err


def test_a_checkpoint_that_does_not_say_its_data_set_is_refused(
  worker, knowing, image, monkeypatch
):
  layout = checkpoints.read_layout(str(knowing / 'model.ckpt-7'))
  for name in ('must_keep', 'may_change'):
    kept = {**getattr(layout, name)}
    kept.pop('dataset_name', None)
    layout = layout._replace(**{name: kept})
  monkeypatch.setattr(checkpoints, 'read_layout', lambda path: layout)
  flags = predict_command.PredictFlags(
    checkpoint_dir=str(knowing), images=str(image)
  )
  with pytest.raises(errors.CheckpointError, match='Give --dataset_name=NAME'):
    predict_command.act(flags)


def test_without_names_it_says_labels(worker, knowing, image):
  done = predict(worker, knowing / 'model.ckpt-7', images=image, top=1)
  assert done.out == f'{image}: 3 100.00 %\n'


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({}, 'images: expected paths, or a --prompt'),
    ({'images': '/none.png'}, '/none.png: '),
    ({'images': '/none.png', 'checkpoint_dir': '/none'}, 'checkpoint prefix'),
    ({'images': 'a', 'dataset_name': 'mnits'}, "did you mean 'mnist'"),
    ({'images': 'a', 'tower': 0}, r'one of \[1, 3\], received 0'),
  ],
)
def test_invalid_flags_are_refused(values, message, worker, knowing):
  done = predict(worker, values.pop('checkpoint_dir', knowing), **values)
  assert done.code == 2
  assert re.search(message, done.error)
