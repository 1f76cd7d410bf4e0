"""One small data set and one whole run for all tests."""

import pathlib
from typing import NamedTuple

import pytest

from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from tests.bin import programs
from tests.slim import mnist_files

TRAIN_EXAMPLES, TEST_EXAMPLES = 90, 37


class WholeRun(NamedTuple):
  """A run that nothing disturbed."""

  train_dir: pathlib.Path
  finished: programs.Finished


@pytest.fixture(scope='session')
def data_dir(tmp_path_factory):
  """90 training and 37 test examples: neither is a multiple of a batch."""
  folder = tmp_path_factory.mktemp('data')
  mnist_files.write_idx(folder / 'idx', TRAIN_EXAMPLES, TEST_EXAMPLES)
  convert_mnist.convert(
    str(folder / 'mnist'),
    source='idx',
    request=mnist_source.SourceOptions(
      str(folder / 'idx'), verify_checksums=False
    ),
  )
  return folder / 'mnist'


@pytest.fixture(scope='session')
def whole_run(data_dir, tmp_path_factory):
  """`python -m terngrad.bin.mnist_train` from its start to its end."""
  train_dir = tmp_path_factory.mktemp('whole') / 'train'
  arguments = programs.whole_run_arguments(data_dir, train_dir)
  with programs.Program('mnist_train', arguments) as program:
    return WholeRun(train_dir, program.wait())


@pytest.fixture(scope='session')
def one_tower(worker, data_dir, tmp_path_factory):
  """train_dir of a run of `one_tower_arguments`. Copy it before changes."""
  folder = tmp_path_factory.mktemp('one') / 'train'
  finished = worker.run(
    'mnist_train', programs.one_tower_arguments(data_dir, folder)
  )
  assert finished.code == 0, finished.err
  return folder
