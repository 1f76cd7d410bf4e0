"""Converts a data set according to a `ConversionRequest`.

A data set of small images is a module with its `FACTS` and its `SOURCES`.
"""

import pathlib
import pkgutil
import types
from typing import NamedTuple

from slim import errors
from slim.datasets import catalog
from slim.datasets import convert_tfds
from slim.datasets.files import downloads
from slim.datasets.photographs import convert_flowers
from slim.datasets.records import sharding
from slim.datasets.small_images import arrays
from slim.datasets.small_images import convert_arrays

# Number of training shards, if it differs from that of the other splits.
TRAIN_SHARDS = {convert_flowers.NAME: 5}


class ConversionRequest(NamedTuple):
  """What to convert, and how.

  Attributes:
    dataset_dir: output folder.
    source: where the data comes from: a key of the data set's SOURCES.
    request: passed to the source.
    layout: how to divide the examples into files.
    options: options of the conversion.
    validation_images: number of images to hold out, for data sets without a
      validation split.
  """

  dataset_dir: str
  source: str
  request: arrays.SourceOptions
  layout: convert_arrays.FileLayout
  options: sharding.ConversionOptions
  validation_images: int


def convert(name: str, conversion: ConversionRequest) -> sharding.Report:
  """Converts a data set.

  Args:
    name: a key of `catalog.CONVERTERS`, or 'tfds:' and the name of a
      tensorflow-datasets data set.
    conversion: what to convert, and how.

  Raises:
    slim.errors.UnknownNameError: the data set is unknown or has no converter.
    slim.errors.DataError: the data cannot be used.
  """
  if name.startswith(catalog.TFDS):
    return convert_from_tfds(name, conversion)
  found = errors.lookup(catalog.CONVERTERS, name, 'data set')
  converter = pkgutil.resolve_name(found)
  if isinstance(converter, types.ModuleType):
    # A module with `FACTS` and `SOURCES`.
    return convert_arrays.convert(
      pathlib.Path(conversion.dataset_dir),
      converter,
      conversion.source,
      conversion.request,
      conversion.layout,
      conversion.options,
    )
  return converter(conversion)


def convert_from_tfds(
  name: str, conversion: ConversionRequest
) -> sharding.Report:
  """Converts an image classification data set of tensorflow-datasets.

  Args:
    name: 'tfds:' and the name of the data set.
    conversion: what to convert, and how.

  Raises:
    slim.errors.DataError: as `convert_tfds.convert`.
  """
  errors.lookup({'auto': 0, 'tfds': 0}, conversion.source, f'source of {name}')
  return convert_tfds.convert(
    pathlib.Path(conversion.dataset_dir),
    name,
    conversion.request.source_dir or '',
    conversion.layout,
    conversion.options,
  )


def flowers(conversion: ConversionRequest) -> sharding.Report:
  """Converts the flower photos.

  Raises:
    slim.errors.DataError: as `photographs.convert_flowers.convert`.
  """
  errors.lookup({'auto': 0}, conversion.source, 'source of flowers')
  source_dir = conversion.request.source_dir
  return convert_flowers.convert(
    pathlib.Path(conversion.dataset_dir),
    pathlib.Path(source_dir) if source_dir else None,
    conversion.validation_images,
    conversion.layout,
    conversion.options,
    downloads.Client(verify=conversion.request.verify_checksums),
  )
