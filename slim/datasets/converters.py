"""The converters of download_and_convert_data, by data set.

To add a set of small images: a module that says what it is, one that says where
it comes from, one entry in `ARRAYS`.
"""

import functools
import pathlib
from collections import abc
from typing import NamedTuple

from slim import errors
from slim.datasets.files import downloads
from slim.datasets.photographs import convert_flowers
from slim.datasets.records import sharding
from slim.datasets.small_images import arrays
from slim.datasets.small_images import cifar10_source
from slim.datasets.small_images import convert_arrays
from slim.datasets.small_images import fashion_mnist_source
from slim.datasets.small_images import mnist_source

# Shards of the training split, where it is not that of the others.
TRAIN_SHARDS = {convert_flowers.NAME: 5}

_Sources = dict[str, abc.Callable[[arrays.Request], arrays.Source]]

ARRAYS: dict[str, tuple[arrays.Facts, _Sources]] = {
  facts.name: (facts, sources)
  for facts, sources in (
    (cifar10_source.FACTS, cifar10_source.SOURCES),
    (fashion_mnist_source.FACTS, fashion_mnist_source.SOURCES),
    (mnist_source.FACTS, mnist_source.SOURCES),
  )
}


class Order(NamedTuple):
  """What to convert, and how.

  Attributes:
    dataset_dir: where to write.
    source: where from: a key of the data set's SOURCES.
    request: passed on to the source.
    layout: how to cut the examples into files.
    options: how to write.
    validation_images: of data sets without a split of their own.
  """

  dataset_dir: str
  source: str
  request: arrays.Request
  layout: convert_arrays.Layout
  options: sharding.Options
  validation_images: int


def convert_arrays_of(name: str, order: Order) -> sharding.Report:
  """Converts a set of small images.

  Args:
    name: a key of `ARRAYS`.
    order: what to do.

  Returns:
    What was done.

  Raises:
    slim.errors.DataError: as `small_images.convert_arrays.convert`.
  """
  facts, sources = ARRAYS[name]
  fetch = errors.lookup(sources, order.source, f'source of {name}')
  folder = pathlib.Path(order.dataset_dir)
  convert_arrays.check_apart(folder, order.request.source_dir)
  return convert_arrays.convert(
    folder,
    facts,
    functools.partial(fetch, order.request),
    order.layout,
    order.options,
  )


def convert_flowers_of(order: Order) -> sharding.Report:
  """Converts the flower photos.

  Args:
    order: what to do.

  Returns:
    What was done.

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


CONVERTERS: dict[str, abc.Callable[[Order], sharding.Report]] = {
  **{name: functools.partial(convert_arrays_of, name) for name in ARRAYS},
  convert_flowers.NAME: convert_flowers_of,
}
