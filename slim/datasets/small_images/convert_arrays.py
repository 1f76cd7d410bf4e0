"""Writes data sets of small images as PNG in the records of 2017."""

import pathlib
from collections import abc
from typing import NamedTuple
from typing import Protocol

import tensorflow as tf

from slim import errors
from slim.datasets.records import features
from slim.datasets.records import shard_manifest
from slim.datasets.records import sharding
from slim.datasets.small_images import arrays

# PNG's fastest zlib level: half the time of the default for 3 % more bytes.
COMPRESSION = 1

_IMAGES_PER_CALL = 500  # images


class FileLayout(NamedTuple):
  """How to divide the examples into files.

  Attributes:
    shard: True writes `train-00000-of-<train_shards>` and so on, and the
      other split as one shard. False writes one file per split,
      'train-mnist.tfrecord'.
    train_shards: number of files of the first split if `shard` is True.
  """

  shard: bool = False
  train_shards: int = 1000


class SourceModule(Protocol):
  """A module that describes a data set and its sources.

  Attributes:
    FACTS: constants of the data set.
    SOURCES: functions that read or download it, by name.
  """

  FACTS: arrays.Facts
  SOURCES: arrays.Sources


def split_names(
  name: str, splits: abc.Sequence[str], layout: FileLayout
) -> dict[str, tuple[str, ...]]:
  """Returns the names of the files by split, the training split first.

  Args:
    name: name of the data set.
    splits: splits of the data set, the training split first.
    layout: how to divide the examples into files.
  """
  if not layout.shard:
    return {split: (f'{split}-{name}.tfrecord',) for split in splits}
  numbers = [layout.train_shards] + [1] * (len(splits) - 1)
  return {
    split: sharding.file_names(split, number)
    for split, number in zip(splits, numbers, strict=True)
  }


def check_different_folders(
  folder: pathlib.Path, source_dir: str | None
) -> None:
  """Refuses to write into the folder of the source.

  Raises:
    slim.errors.DataError: both are the same folder.
  """
  if source_dir and folder.resolve() == pathlib.Path(source_dir).resolve():
    raise errors.DataError(
      f'{folder}: expected different folders to read from and to write to, '
      'because a reader would take every file train-* for records; received '
      'the same folder for both. Choose another --dataset_dir.'
    )


def convert(
  folder: pathlib.Path,
  module: SourceModule,
  source: str,
  request: arrays.SourceOptions,
  layout: FileLayout,
  options: sharding.ConversionOptions,
) -> sharding.Report:
  """Writes the shards of a data set, labels.txt and shards.json.

  Without a requested source, a complete conversion of the data set into the
  same files is reused, whatever its source, and no source is read.

  Args:
    folder: output folder; created if it does not exist.
    module: module of the data set.
    source: a key of the module's `SOURCES`.
    request: passed to the source.
    layout: how to divide the examples into files.
    options: options of the conversion.

  Raises:
    slim.errors.DataError: the source is not available, or as `sharding.write`.
  """
  facts = module.FACTS
  fetch = errors.lookup(module.SOURCES, source, f'source of {facts.name}')
  check_different_folders(folder, request.source_dir)
  names = split_names(facts.name, facts.splits, layout)
  flat = [name for some in names.values() for name in some]
  is_any_source = source == 'auto' and not request.source_dir
  if is_any_source and not options.overwrite:
    complete = shard_manifest.intact(folder, flat)
    if complete and complete.dataset == facts.name:
      return sharding.Report(False, complete.counts, '', complete.skipped)
  found = fetch(request)
  plan = sharding.ConversionPlan(
    dataset=facts.name,
    class_names=facts.class_names,
    splits=tuple(
      sharding.make_split(split, names[split], len(found.splits[split].labels))
      for split in facts.splits
    ),
    encode=_encoder(facts, found),
    source=found.description,
    identity=arrays.identity(found),
    items_per_call=_IMAGES_PER_CALL,
  )
  return sharding.write(folder, plan, options)


def _encoder(
  facts: arrays.Facts, source: arrays.ArraySource
) -> abc.Callable[[abc.Sequence[sharding.ExampleIndex]], list[bytes]]:
  boxes = features.box_features()
  templates = [
    features.Template(
      features.image_features(b'png', facts.shape, label, name) | boxes
    )
    for label, name in enumerate(facts.class_names)
  ]

  def encode(indices: abc.Sequence[sharding.ExampleIndex]) -> list[bytes]:
    split, first = indices[0]
    images, labels = (
      part[first : first + len(indices)] for part in source.splits[split]
    )
    pngs = tf.io.encode_png(
      images.reshape(-1, *facts.shape), compression=COMPRESSION
    ).numpy()
    return [
      templates[label].serialize(png)
      for png, label in zip(pngs, labels.tolist(), strict=True)
    ]

  return encode
