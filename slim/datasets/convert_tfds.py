"""Writes any tensorflow-datasets image classification set as shards.

Images are converted to upright JPEG, with the keys of build_image_data.
Label 0 is reserved for the background.
"""

import hashlib
import pathlib
from collections import abc
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

import numpy as np
from absl import logging

from slim import errors
from slim.datasets import catalog
from slim.datasets.photographs import image_folders
from slim.datasets.photographs import images
from slim.datasets.photographs import labeled_images
from slim.datasets.records import shard_writer
from slim.datasets.records import sharding
from slim.datasets.small_images import convert_arrays

if TYPE_CHECKING:
  import tensorflow_datasets as tfds

_EXAMPLES_PER_CALL = 256


class Source(NamedTuple):
  """A data set that tensorflow-datasets has prepared.

  Attributes:
    builder: builder of the data set.
    image: key of the image feature.
    label: key of the class feature.
    class_names: names of the builder's labels 0, 1, ..., which become labels
      1, 2, ... in the shards.
  """

  builder: 'tfds.core.DatasetBuilder'
  image: str
  label: str
  class_names: tuple[str, ...]


def convert(
  folder: pathlib.Path,
  name: str,
  data_dir: str,
  layout: convert_arrays.FileLayout,
  options: sharding.ConversionOptions,
) -> sharding.Report:
  """Writes all splits.

  Args:
    folder: output folder.
    name: 'tfds:' and the name in tensorflow-datasets: 'tfds:beans',
      'tfds:cats_vs_dogs:4.0.1'.
    data_dir: folder where tensorflow-datasets has prepared or will prepare
      the data set; '' uses its default folder.
    layout: how to divide the examples into files.
    options: options of the conversion.

  Raises:
    slim.errors.DataError: the data set is not available, or is not an image
      classification set; or as `sharding.write`.
  """
  source = find(name.removeprefix(catalog.TFDS), data_dir)
  return sharding.write(folder, plan(name, source, layout), options)


def find(name: str, data_dir: str) -> Source:
  """Prepares a data set, unless it already is.

  Args:
    name: the name in tensorflow-datasets.
    data_dir: as in `convert`.

  Raises:
    slim.errors.DataError: the data set is not available, or is not an image
      classification set.
  """
  # Imported here, so that other data sets do not wait for it.
  import tensorflow_datasets as tfds

  # tensorflow-datasets logs every range that is read.
  logging.set_verbosity(logging.WARNING)
  try:
    builder = tfds.builder(name, data_dir=data_dir or None)
    builder.download_and_prepare()
  # It raises errors of many classes, including network and registry errors.
  except Exception as error:
    lines = str(error).strip().splitlines()
    raise errors.DataError(
      f'{catalog.TFDS}{name}: expected a data set of tensorflow-datasets; '
      f'received "{lines[0] if lines else type(error).__name__}". Check the '
      'name and the network, or pass --source_dir, a folder where the data set '
      'is prepared.'
    ) from error
  features = builder.info.features
  keys = [
    [key for key, one in features.items() if isinstance(one, kind)]
    for kind in (tfds.features.Image, tfds.features.ClassLabel)
  ]
  if any(len(some) != 1 for some in keys):
    raise errors.DataError(
      f'{catalog.TFDS}{name}: expected one image and one class per example; '
      f'received images {keys[0]} and classes {keys[1]}. Choose an image '
      'classification set.'
    )
  (image,), (label,) = keys
  return Source(builder, image, label, tuple(features[label].names))


def plan(
  name: str, source: Source, layout: convert_arrays.FileLayout
) -> sharding.ConversionPlan:
  """Plans the shards of all splits.

  Args:
    name: name of the data set, as in `--dataset_name` of training.
    source: from `find`.
    layout: how to divide the examples into files.
  """
  splits = source.builder.info.splits
  # The training split comes first.
  known = sorted(splits, key=lambda split: (split != 'train', split))
  names = convert_arrays.split_names('tfds', known, layout)
  return sharding.ConversionPlan(
    dataset=name,
    class_names=(image_folders.BACKGROUND, *source.class_names),
    splits=tuple(
      sharding.make_split(split, names[split], splits[split].num_examples)
      for split in known
    ),
    encode=lambda indices: _encode(source, indices),
    source=f'tensorflow-datasets, {source.builder.info.full_name}',
    identity=f'JPEG {images.QUALITY} {_identity(source)}',
    items_per_call=_EXAMPLES_PER_CALL,
  )


def _identity(source: Source) -> str:
  """Returns a hash of name, version, splits, their shards and sizes."""
  info = source.builder.info
  known = [info.full_name, source.class_names]
  known += [
    (name, split.shard_lengths, split.num_bytes)
    for name, split in sorted(info.splits.items())
  ]
  return hashlib.sha256(repr(known).encode()).hexdigest()


def _encode(
  source: Source, indices: abc.Sequence[sharding.ExampleIndex]
) -> abc.Iterator[bytes | shard_writer.Unreadable]:
  """Yields the records of consecutive examples of a split."""
  import tensorflow_datasets as tfds

  split, first = indices[0]
  wanted = tfds.core.ReadInstruction(
    split, from_=first, to=first + len(indices), unit='abs'
  )
  examples = source.builder.as_dataset(
    split=wanted,
    shuffle_files=False,
    # Read files sequentially, which is the order of the example numbers.
    read_config=tfds.ReadConfig(interleave_cycle_length=1),
    decoders={source.image: tfds.decode.SkipDecoding()},
  )
  for index, example in zip(indices, tfds.as_numpy(examples), strict=True):
    yield _record(source, index, example)


def _record(
  source: Source, index: sharding.ExampleIndex, example: abc.Mapping[str, Any]
) -> bytes | shard_writer.Unreadable:
  label = int(np.asarray(example[source.label]))
  name = f'{index.split}_{index.number}'
  if not 0 <= label < len(source.class_names):
    return shard_writer.Unreadable(name, f'label {label} is not a class')
  try:
    image = images.to_jpeg(bytes(example[source.image]))
  except images.ImageError as error:
    return shard_writer.Unreadable(name, str(error))
  text = source.class_names[label]
  return labeled_images.record(image, label + 1, text, name)
