"""Writes MNIST as TFRecord files, in the format of the 2017 code."""

import pathlib

from slim.datasets.records import sharding
from slim.datasets.small_images import convert_arrays
from slim.datasets.small_images import mnist_source

_NO_REQUEST = mnist_source.SourceOptions()
_ONE_FILE = convert_arrays.FileLayout()
_DEFAULTS = sharding.ConversionOptions()


def convert(
  dataset_dir: str,
  *,
  source: str = 'auto',
  request: mnist_source.SourceOptions = _NO_REQUEST,
  layout: convert_arrays.FileLayout = _ONE_FILE,
  overwrite: bool = False,
  options: sharding.ConversionOptions = _DEFAULTS,
) -> sharding.Report:
  """Writes the shards of MNIST, labels.txt and shards.json.

  Args:
    dataset_dir: output folder; created if it does not exist.
    source: a key of `slim.datasets.small_images.mnist_source.SOURCES`.
    request: passed to the source.
    layout: how to divide the examples into files.
    overwrite: writes even if complete files exist.
    options: options of the conversion; `overwrite` replaces its field.

  Raises:
    slim.errors.DataError: the source is missing or damaged, or the folder is
      not writable.
  """
  return convert_arrays.convert(
    pathlib.Path(dataset_dir),
    mnist_source,
    source,
    request,
    layout,
    options._replace(overwrite=overwrite),
  )
