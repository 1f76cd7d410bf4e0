"""Which checkpoints an evaluation scores, and when it ends."""

import dataclasses

import pytest

from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.config import options as options_lib
from terngrad.config import training as configs
from terngrad.training import evaluation
from tests.checkpoint import test_pretrained
from tests.slim import mnist_files

DEFAULT = configs.EvalConfig().run.max_steps


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('mnist')
  mnist_files.write_idx(folder / 'idx', 1, 7)
  source = mnist_source.SourceOptions(str(folder / 'idx'), False)
  convert_mnist.convert(str(folder), source='idx', request=source)
  return folder


def writer_of(run, tmp_path, **changes):
  folder = str(tmp_path / 'train')
  layout = run.layout._replace(**changes)
  return checkpoints.Writer(folder, layout, run.replicas, run.names)


@pytest.fixture
def writer(tmp_path):
  """Writes checkpoints of a run that is longer than the flag's default."""
  run = test_pretrained.Started().run
  return writer_of(run, tmp_path, max_steps=2 * DEFAULT)


def configured(data_dir, tmp_path, **changes):
  values = {
    'data_dir': str(data_dir),
    'dataset_name': 'mnist',
    'net': 'lenet',
    'subset': 'test',
    'checkpoint_dir': str(tmp_path / 'train'),
    'eval_dir': str(tmp_path / 'eval'),
  }
  return options_lib.build(configs.EvalConfig, **values | changes)


def polled(data_dir, tmp_path, wait, **changes):
  """Evaluates until the end; returns (steps that were scored, log)."""
  changes = {'image_size': test_pretrained.SIZE} | changes
  config = configured(data_dir, tmp_path, **changes)
  lines = []
  evaluation.evaluate(config, lines.append, wait)
  loaded = (line.rpartition(' at step ') for line in lines)
  return [int(step) for _, found, step in loaded if found], lines


def test_polling_goes_on_to_the_end_of_a_run_beyond_the_default(
  writer, data_dir, tmp_path
):
  writer.save(DEFAULT)
  steps, _ = polled(data_dir, tmp_path, lambda _: writer.save(2 * DEFAULT))
  assert steps == [DEFAULT, 2 * DEFAULT]


def test_polling_ends_at_the_step_that_is_asked_for(writer, data_dir, tmp_path):
  writer.save(5)
  steps, _ = polled(data_dir, tmp_path, None, max_steps=5)
  assert steps == [5]


def test_a_checkpoint_that_is_named_is_scored_once(writer, data_dir, tmp_path):
  writer.save(1)
  prefix = checkpoints.newest(str(tmp_path / 'train'))
  writer.save(2)
  steps, _ = polled(data_dir, tmp_path, None, checkpoint_dir=prefix)
  assert steps == [1]


def test_a_named_checkpoint_that_does_not_fit_ends_the_evaluation(
  writer, data_dir, tmp_path
):
  writer.save(1)
  prefix = checkpoints.newest(str(tmp_path / 'train'))
  with pytest.raises(errors.CheckpointError, match='with net'):
    polled(
      data_dir, tmp_path, None, checkpoint_dir=prefix, net='cifar10_alexnet'
    )


def test_a_checkpoint_that_is_deleted_before_it_is_read_is_passed_over(
  writer, data_dir, tmp_path, monkeypatch
):
  """The trainer deletes it after the evaluator has found it."""
  writer.save(1)
  newest, waits = checkpoints.newest, []

  def find(folder):
    path = newest(folder)
    if waits and path.endswith('-2'):
      writer.save(2 * DEFAULT)
      for file in (tmp_path / 'train').glob('model.ckpt-2.*'):
        file.unlink()
    return path

  def wait(seconds):
    waits.append(seconds)
    writer.save(2)

  monkeypatch.setattr(checkpoints, 'newest', find)
  steps, lines = polled(data_dir, tmp_path, wait)
  assert steps == [1, 2 * DEFAULT]
  assert any('model.ckpt-2 was deleted, looking' in line for line in lines)


def scored(data_dir, tmp_path, **changes):
  """Evaluates once; returns (values, log)."""
  config = configured(data_dir, tmp_path, run_once=True, **changes)
  lines = []
  return evaluation.evaluate(config, lines.append).values, '\n'.join(lines)


def test_data_are_read_as_in_the_training_unless_flags_differ(
  data_dir, tmp_path
):
  run = test_pretrained.Started(preprocessing='lenet').run
  writer_of(run, tmp_path).save(1)
  as_trained, log = scored(data_dir, tmp_path)
  assert f'--image_size={test_pretrained.SIZE}, as in the training' in log
  assert '--preprocessing=lenet, as in the training' in log
  given = {'image_size': test_pretrained.SIZE, 'preprocessing': 'lenet'}
  same, log = scored(data_dir, tmp_path, **given)
  assert same == as_trained
  assert 'training' not in log
  other, log = scored(data_dir, tmp_path, preprocessing='mnist')
  assert other != as_trained
  assert '--preprocessing=mnist differs from the --preprocessing=lenet' in log


def test_defaults_of_a_command_are_replaced_by_those_of_the_training(
  data_dir, tmp_path
):
  """A command's default is not the general one; both may be given too."""
  layout = test_pretrained.Started().run.layout
  size = configs.EvalConfig().data.image_size
  lines = []
  for given, image_size, expected in (
    ((), 2 * size, test_pretrained.SIZE),
    (('image_size',), size, size),
  ):
    config = dataclasses.replace(
      configured(data_dir, tmp_path, image_size=image_size),
      given=frozenset(given),
    )
    found = evaluation._data_as_trained(config, layout, lines.append)
    assert found.image_size == expected
  as_trained, differs = lines
  assert (
    f'--image_size={test_pretrained.SIZE}, as in the training' in as_trained
  )
  assert f'warning: --image_size={size} differs' in differs


def test_checkpoints_that_record_no_options_are_evaluated_with_the_flags(
  data_dir, tmp_path
):
  run = test_pretrained.Started(preprocessing='lenet').run
  writer_of(run, tmp_path, must_keep=None, may_change=None).save(1)
  size = test_pretrained.SIZE
  by_default, log = scored(data_dir, tmp_path, image_size=size)
  assert 'the training' not in log
  expected, _ = scored(
    data_dir, tmp_path, image_size=size, preprocessing='mnist'
  )
  assert by_default == expected


def test_the_log_says_how_many_of_the_examples_are_scored(data_dir, tmp_path):
  writer_of(test_pretrained.Started().run, tmp_path).save(1)
  _, log = scored(data_dir, tmp_path, num_examples=4)
  assert '4 of 7 examples, the first\n' in log and '[4 examples]' in log
  _, log = scored(data_dir, tmp_path, num_examples=7)
  assert ' of 7 examples' not in log and '[7 examples]' in log
