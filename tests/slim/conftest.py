import pathlib
from typing import NamedTuple

import pytest

from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from tests.slim import mnist_files


class Converted(NamedTuple):
  folder: pathlib.Path
  splits: dict  # {split: mnist_files.Arrays}


@pytest.fixture
def small_mnist(tmp_path):
  """A converted data set: 23 training and 11 test examples."""
  splits = mnist_files.write_idx(tmp_path / 'idx')
  folder = tmp_path / 'mnist'
  convert_mnist.convert(
    str(folder),
    source='idx',
    request=mnist_source.SourceOptions(
      str(tmp_path / 'idx'), verify_checksums=False
    ),
  )
  return Converted(folder, splits)
