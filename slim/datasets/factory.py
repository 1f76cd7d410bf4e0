"""Data sets by name.

To add one: a module that says what it is, a preprocessing, one entry in
`DATASETS`.
"""

import os
from typing import NamedTuple

import tensorflow as tf

from slim import errors
from slim.datasets import examples
from slim.datasets import mnist
from slim.datasets import order
from slim.datasets import records
from slim.datasets import shard_manifest
from slim.preprocessing import factory as preprocessing


class Dataset(NamedTuple):
  """What can be read.

  Attributes:
    name: the key in `DATASETS`, and in the table of preprocessings.
    class_names: names of the labels, from label 0.
    image_size: height and width of the stored images, in pixels.
    channels: of the images.
    splits: what `load` accepts; the first is the one to train on.
  """

  name: str
  class_names: tuple[str, ...]
  image_size: int
  channels: int
  splits: tuple[str, ...]

  @property
  def num_classes(self) -> int:
    """Number of labels."""
    return len(self.class_names)


DATASETS: dict[str, Dataset] = {
  mnist.NAME: Dataset(
    name=mnist.NAME,
    class_names=mnist.CLASS_NAMES,
    image_size=mnist.IMAGE_SIZE,
    channels=mnist.CHANNELS,
    splits=mnist.SPLITS,
  ),
}


def files(
  name: str, data_dir: str | os.PathLike, split: str
) -> tuple[records.RecordFile, ...]:
  """Finds and counts the records of a split.

  Args:
    name: a key of `DATASETS`.
    data_dir: the folder the converter wrote into.
    split: one of the data set's splits.

  Returns:
    The files `<data_dir>/<split>-*`, sorted by name, at least one.

  Raises:
    slim.errors.UnknownNameError: no such data set or split.
    slim.errors.DataError: no files, one of them is damaged, or a conversion
      into the folder did not come to its end.
  """
  dataset = errors.lookup(DATASETS, name, 'data set')
  errors.lookup(dict.fromkeys(dataset.splits), split, f'split of {name}')
  shard_manifest.check_finished(data_dir)
  paths = records.find(data_dir, split)
  if not paths:
    raise errors.DataError(
      f'{os.fspath(data_dir)}: expected files {split}-*; received none. Fill '
      'the folder with: python -m slim.download_and_convert_data '
      f'--dataset_name {name} --dataset_dir {os.fspath(data_dir)}'
    )
  return records.scan_all(paths)


def load(
  name: str,
  data_dir: str | os.PathLike,
  split: str,
  *,
  image_size: int,
  batch_size: int,
  training: bool,
  seed: int = 0,
  start: int = 0,
  shuffle_buffer: int = 16384,
) -> tuple[tf.data.Dataset, int]:
  """Opens a split of a data set.

  Training streams have no end, and all their batches are full, across the
  borders of epochs. Position p is example p % n of epoch p // n, and, for given
  files and shuffle_buffer, an epoch's order is a function of (seed, epoch): the
  stream from position k * batch_size equals, bit for bit, the stream from 0
  after its first k batches.

  Evaluation streams hold every example once, in the order of the files; the
  last batch may be smaller.

  Args:
    name: a key of `DATASETS`.
    data_dir: the folder the converter wrote into.
    split: one of the data set's splits.
    image_size: height and width of the images to deliver, in pixels.
    batch_size: examples a batch, >= 1.
    training: a training stream, or one for evaluation.
    seed: of the order and of augmentation.
    start: position of the first example, >= 0; 0 for evaluation.
    shuffle_buffer: examples shuffled together, >= 1, and a bound on memory: two
      times as many serialized examples are held.

  Returns:
    Elements (images float32 [B, image_size, image_size, channels], labels
    int32 [B]), and the number n of examples in the split. Damage found while
    reading surfaces as tf.errors.OpError: see `slim.datasets.records.explain`.

  Raises:
    slim.errors.UnknownNameError: no such data set or split.
    slim.errors.DataError: no files, or one of them is damaged.
    ValueError: a number is out of its range.
  """
  _check_at_least(1, image_size=image_size, batch_size=batch_size)
  _check_at_least(1, shuffle_buffer=shuffle_buffer)
  _check_at_least(0, start=start)
  if start and not training:
    raise ValueError(f'start: expected 0 for evaluation; received {start}.')
  found = files(name, data_dir, split)
  total = sum(file.count for file in found)
  if training:
    # A larger window than the split would only tie the order to its size.
    window = min(shuffle_buffer, total)
    stream = order.shuffled(found, seed=seed, start=start, window=window)
  else:
    stream = order.in_file_order(found)
  batches = _decoded(stream, DATASETS[name], image_size, batch_size, seed)
  return batches.prefetch(tf.data.AUTOTUNE), total


def _decoded(
  stream: tf.data.Dataset,
  dataset: Dataset,
  image_size: int,
  batch_size: int,
  seed: int,
) -> tf.data.Dataset:
  """Batches, decodes and preprocesses (position, serialized) pairs."""
  preprocess = preprocessing.get(dataset.name)
  key = tf.constant(seed, tf.int64)
  shape = (dataset.image_size, dataset.image_size, dataset.channels)

  def decode(positions, serialized):
    images, labels = examples.decode_png(serialized, shape, dataset.num_classes)
    # A position never comes twice, so each visit of an example has its own.
    seeds = tf.stack([tf.fill(tf.shape(positions), key), positions], axis=1)
    return preprocess(images, seeds, image_size), labels

  return stream.batch(batch_size).map(
    decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
  )


def _check_at_least(lowest: int, **values: int) -> None:
  for name, value in values.items():
    if value < lowest:
      raise ValueError(f'{name}: expected >= {lowest}; received {value}.')
