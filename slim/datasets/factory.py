"""Opens data sets by name, as streams of batches."""

import dataclasses
import os
from collections import abc
from typing import Any

import tensorflow as tf

from slim import errors
from slim.datasets import catalog
from slim.datasets import examples
from slim.datasets import image_db
from slim.datasets import image_folder
from slim.datasets import read_options
from slim.datasets import shards
from slim.datasets import sources
from slim.datasets import streams
from slim.datasets import token_batches
from slim.preprocessing import contract
from slim.preprocessing import factory as preprocessing
from slim.preprocessing import photographs

DATASETS = catalog.DATASETS
ReadOptions = read_options.ReadOptions
SplitInfo = read_options.SplitInfo

# Opens sources that are read by index; keys are `catalog.Dataset.storage`.
_SOURCES: dict[str, abc.Callable[..., sources.ExampleSource]] = {
  'database': image_db.open_split,
  'folder': image_folder.open_split,
}


# AutoGraph would rewrite every function that reads or preprocesses examples, in
# a second. They have no conditions and loops that it would have to rewrite.
@tf.autograph.experimental.do_not_convert
def load(
  name: str,
  data_dir: str | os.PathLike[str],
  split: str,
  options: ReadOptions,
  num_classes: int | None = None,
) -> tuple[tf.data.Dataset, SplitInfo]:
  """Opens a split of a data set.

  Training streams have no end, and all their batches are full; a batch may
  span two epochs. Position p is example p % n of epoch p // n. For given files
  and shuffle_buffer, an epoch's order is a function of (seed, epoch): the
  stream that starts at position k * batch_size is bit-identical to the stream
  that starts at 0, after its first k batches.

  Evaluation streams deliver every example once, in the order of the files. The
  last batch may be smaller.

  Args:
    name: name of a data set, as `catalog.find` takes it.
    data_dir: the folder of the data set.
    split: one of the data set's splits.
    options: read options.
    num_classes: number of classes, for folders that do not state it. None
      takes the number from the folder, or else from the catalog.

  Returns:
    Elements (images float32 [B, image_size, image_size, channels], labels
    int32 [B]), of text those of `token_batches.load`, and the description of
    the split. Damage found while reading raises tf.errors.OpError;
    `slim.datasets.records.records.explain` converts it.

  Raises:
    slim.errors.UnknownNameError: unknown data set, split or preprocessing.
    slim.errors.DataError: there are no files, or a file is damaged.
    ValueError: a number is out of its range.
  """
  options.check()
  dataset = catalog.find(name)
  if dataset.splits:
    errors.lookup(dict.fromkeys(dataset.splits), split, f'split of {name}')
  if dataset.storage == 'tokens':
    found = shards.find(dataset, data_dir, split, num_classes)
    return token_batches.load(found, data_dir, options)
  return _load_images(dataset, data_dir, split, options, num_classes)


def _load_images(
  dataset: catalog.Dataset,
  data_dir: str | os.PathLike[str],
  split: str,
  options: ReadOptions,
  num_classes: int | None,
) -> tuple[tf.data.Dataset, SplitInfo]:
  """Opens a split of images; see `load`."""
  chosen = preprocessing.choose(
    options.preprocessing, dataset.preprocessing, options.net, dataset.channels
  )
  # Images of equal size are preprocessed in batches.
  size = dataset.image_size if isinstance(chosen, contract.Batched) else None
  if dataset.storage == 'records':
    found = shards.find(dataset, data_dir, split, num_classes)
    stream = streams.open_shards(found, dataset, options, as_strings=bool(size))
  else:
    source = _SOURCES[dataset.storage](data_dir, split, num_classes)
    stream = streams.open_source(source, dataset, options)
  stream, options = streams.select_rows(stream, options)
  if size and isinstance(chosen, contract.Batched):
    shape = (size, size, dataset.channels)
    batches = _small_batches(stream, shape, options, chosen)
  else:
    batches = _photograph_batches(stream, options, contract.single(chosen))
  info, batches = _shift_labels(stream.split, batches, options.labels_offset)
  return batches.prefetch(tf.data.AUTOTUNE), info


def _shift_labels(
  info: SplitInfo, batches: tf.data.Dataset, offset: int
) -> tuple[SplitInfo, tf.data.Dataset]:
  """Subtracts `offset` from the labels and drops the first `offset` classes."""
  if not offset:
    return info, batches
  if offset >= info.num_classes:
    raise errors.DataError(
      f'labels_offset: expected less than the {info.num_classes} classes; '
      f'received {offset}. Choose a smaller one.'
    )

  def shift(
    images: tf.Tensor, labels: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    message = (
      f'labels_offset: expected no label below {offset}; received one. Lower '
      'the offset if label 0 is a class here and not the background.'
    )
    with tf.control_dependencies(
      [tf.debugging.assert_greater_equal(labels, offset, message)]
    ):
      return images, labels - offset

  names = info.labels and {
    label - offset: name
    for label, name in info.labels.items()
    if label >= offset
  }
  shifted = dataclasses.replace(
    info, num_classes=info.num_classes - offset, labels=names
  )
  return shifted, batches.map(shift)


def _seeds(positions: tf.Tensor, options: ReadOptions) -> tf.Tensor:
  """Returns seeds int64 [..., 2] of positions int64 [...].

  No position repeats, so each visit of an example has a different seed, and
  no two workers share a seed.
  """
  ids = positions * options.num_workers + options.worker
  key = tf.constant(options.seed, tf.int64)
  return tf.stack([tf.fill(tf.shape(ids), key), ids], axis=-1)


def _small_batches(
  stream: streams.Stream,
  shape: tuple[int, int, int],
  options: ReadOptions,
  chosen: contract.Batched,
) -> tf.data.Dataset:
  """Decodes and preprocesses images of equal size in batches."""
  act = chosen.train if options.training else chosen.evaluate
  classes = stream.split.num_classes

  def decode(
    positions: tf.Tensor, serialized: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    images, labels = examples.decode_png(serialized, shape, classes)
    seeds = _seeds(positions, options)
    return act(images, seeds, options.image_size), labels

  return stream.elements.batch(options.batch_size).map(
    decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
  )


def _photograph_batches(
  stream: streams.Stream,
  options: ReadOptions,
  chosen: contract.Single,
) -> tf.data.Dataset:
  """Decodes and preprocesses photographs one at a time, then batches them."""
  step = chosen.train if options.training else chosen.evaluate

  def decode(position: tf.Tensor, element: Any) -> tuple[tf.Tensor, tf.Tensor]:
    stored = stream.read(element)
    photograph = photographs.from_encoded(
      stored.encoded,
      image_format=stored.image_format,
      size=stored.size,
      boxes=stored.boxes,
      channels=stream.split.channels,
    )
    seed = _seeds(position, options)
    return step(photograph, seed, options.image_size), stored.label

  def check(
    images: tf.Tensor, labels: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    return images, examples.check_labels(labels, stream.split.num_classes)

  decoded = stream.elements.map(
    decode,
    num_parallel_calls=options.threads or os.cpu_count() or 1,
    deterministic=True,
  )
  return decoded.batch(options.batch_size).map(
    check, num_parallel_calls=1, deterministic=True
  )
