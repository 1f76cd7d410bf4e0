"""Writes data sets of small images as PNG in the records of 2017."""

import pathlib
from collections import abc
from typing import NamedTuple

import tensorflow as tf

from slim import errors
from slim.datasets.records import features
from slim.datasets.records import shard_manifest
from slim.datasets.records import sharding
from slim.datasets.small_images import arrays

# Of PNG; zlib's fastest: half the time of its default for 3 % more bytes.
COMPRESSION = 1

_ENCODE_TOGETHER = 500  # images


class FileLayout(NamedTuple):
  """How to cut the examples into files.

  Attributes:
    shard: write `train-00000-of-<train_shards>` and so on, and the other split
      as one shard; else one file a split, 'train-mnist.tfrecord'.
    train_shards: files of the first split where `shard` is set.
  """

  shard: bool = False
  train_shards: int = 1000


def split_names(
  name: str, splits: abc.Sequence[str], layout: FileLayout
) -> dict[str, tuple[str, ...]]:
  """Returns the names of the files by split, the first one to train on.

  Args:
    name: of the data set.
    splits: of the data set.
    layout: how they are cut.
  """
  if not layout.shard:
    return {split: (f'{split}-{name}.tfrecord',) for split in splits}
  numbers = [layout.train_shards] + [1] * (len(splits) - 1)
  return {
    split: sharding.file_names(split, number)
    for split, number in zip(splits, numbers, strict=True)
  }


def kept(
  folder: pathlib.Path, names: dict[str, tuple[str, ...]]
) -> sharding.Report | None:
  """Reports on complete files of an earlier conversion; None if there are none.

  Args:
    folder: which may have them.
    names: as `split_names`.
  """
  flat = [name for some in names.values() for name in some]
  found = shard_manifest.intact(folder, flat)
  return found and sharding.Report(False, found.counts, '', found.skipped)


def check_apart(folder: pathlib.Path, source_dir: str | None) -> None:
  """Refuses to write where the source is.

  Raises:
    slim.errors.DataError: both are the same folder.
  """
  if source_dir and folder.resolve() == pathlib.Path(source_dir).resolve():
    raise errors.DataError(
      f'{folder}: expected different folders to read from and to write to, '
      'because a reader takes every file train-* for records; received one. '
      'Choose another --dataset_dir.'
    )


def convert(
  folder: pathlib.Path,
  facts: arrays.Facts,
  fetch: abc.Callable[[], arrays.ArraySource],
  layout: FileLayout,
  options: sharding.Options,
) -> sharding.Report:
  """Writes the shards of a data set, labels.txt and shards.json.

  Complete files of an earlier conversion with the same names are kept, whatever
  they came from, and the source is not asked.

  Args:
    folder: where to write; made if it does not exist.
    facts: of the data set.
    fetch: gets the examples.
    layout: how to cut them.
    options: how to write.

  Returns:
    What was done.

  Raises:
    slim.errors.DataError: the source cannot be had, or as `sharding.write`.
  """
  names = split_names(facts.name, facts.splits, layout)
  done = None if options.overwrite else kept(folder, names)
  if done:
    return done
  source = fetch()
  plan = sharding.Plan(
    dataset=facts.name,
    class_names=facts.class_names,
    splits=tuple(
      sharding.OutputSplit(split, names[split], _Rows(source.splits[split]))
      for split in facts.splits
    ),
    encode=_encoder(facts),
    source=source.description,
    identity=arrays.identity(source),
    together=_ENCODE_TOGETHER,
  )
  return sharding.write(folder, plan, options)


class _Rows:
  """A split whose slices are splits."""

  def __init__(self, split: arrays.SplitArrays):
    self._split = split

  def __len__(self) -> int:
    return len(self._split.labels)

  def __getitem__(self, rows: slice) -> '_Rows':
    return _Rows(arrays.SplitArrays(*(part[rows] for part in self._split)))

  def stacked(self, shape: tuple[int, int, int]) -> arrays.SplitArrays:
    images, labels = self._split
    return arrays.SplitArrays(images.reshape(-1, *shape), labels)


def _encoder(facts: arrays.Facts) -> abc.Callable[[_Rows], list[bytes]]:
  boxes = features.of_boxes()
  templates = [
    features.Template(
      features.of_image(b'png', facts.shape, label, name) | boxes
    )
    for label, name in enumerate(facts.class_names)
  ]

  def encode(rows):
    images, labels = rows.stacked(facts.shape)
    pngs = tf.io.encode_png(images, compression=COMPRESSION).numpy()
    return [
      templates[label].serialize(png)
      for png, label in zip(pngs, labels.tolist(), strict=True)
    ]

  return encode
