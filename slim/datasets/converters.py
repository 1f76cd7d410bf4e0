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
  request: arrays.Request
  layout: convert_arrays.FileLayout
  options: sharding.Options
  validation_images: int


def convert(name: str, order: ConversionRequest) -> sharding.Report:
  """Converts a data set.

  Args:
    name: a key of `catalog.CONVERTERS`, or 'tfds:' and the name of a
      tensorflow-datasets data set.
    order: what to convert, and how.

  Raises:
    slim.errors.UnknownNameError: the data set is unknown or has no converter.
    slim.errors.DataError: the data cannot be used.
  """
  if name.startswith(catalog.TFDS):
    return of_tfds(name, order)
  found = errors.lookup(catalog.CONVERTERS, name, 'data set')
  converter = pkgutil.resolve_name(found)
  if isinstance(converter, types.ModuleType):
    # A module with `FACTS` and `SOURCES`.
    return convert_arrays.convert(
      pathlib.Path(order.dataset_dir),
      converter,
      order.source,
      order.request,
      order.layout,
      order.options,
    )
  return converter(order)


def of_tfds(name: str, order: ConversionRequest) -> sharding.Report:
  """Converts an image classification data set of tensorflow-datasets.

  Args:
    name: 'tfds:' and the name of the data set.
    order: what to convert, and how.

  Raises:
    slim.errors.DataError: as `convert_tfds.convert`.
  """
  errors.lookup({'auto': 0, 'tfds': 0}, order.source, f'source of {name}')
  return convert_tfds.convert(
    pathlib.Path(order.dataset_dir),
    name,
    order.request.source_dir or '',
    order.layout,
    order.options,
  )


def flowers(order: ConversionRequest) -> sharding.Report:
  """Converts the flower photos.

  Raises:
    slim.errors.DataError: as `photographs.convert_flowers.convert`.
  """
  errors.lookup({'auto': 0}, order.source, 'source of flowers')
  source_dir = order.request.source_dir
  return convert_flowers.convert(
    pathlib.Path(order.dataset_dir),
    pathlib.Path(source_dir) if source_dir else None,
    order.validation_images,
    order.layout,
    order.options,
    downloads.Client(verify=order.request.verify_checksums),
  )
