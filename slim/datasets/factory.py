"""Opens data sets by name, as streams of batches."""

import dataclasses
import os
from collections import abc
from typing import NamedTuple

import tensorflow as tf

from slim import errors
from slim.datasets import catalog
from slim.datasets import examples
from slim.datasets import image_db
from slim.datasets import image_folder
from slim.datasets import order
from slim.datasets import shards
from slim.datasets import sources
from slim.preprocessing import contract
from slim.preprocessing import factory as preprocessing
from slim.preprocessing import photographs

DATASETS = catalog.DATASETS

# Sources that are read by number, by `catalog.Dataset.storage`.
_SOURCES: dict[str, abc.Callable[..., sources.Source]] = {
  'database': image_db.open_split,
  'folder': image_folder.open_split,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Delivery:
  """How a split is to be delivered.

  Attributes:
    image_size: height and width of the images to deliver, in pixels.
    batch_size: examples a batch, >= 1.
    training: a training stream, or one for evaluation.
    seed: of the order and of augmentation, any int64.
    start: position of the first example, >= 0; 0 for evaluation.
    shuffle_buffer: examples shuffled together where records are read, >= 1, and
      a bound on memory: at most three times as many serialized examples are
      held. Sources that are read by number hold none.
    net: what the images are for; chooses the preprocessing.
    preprocessing: a key of the table of preprocessings; '' for the one that
      data set and net have.
    labels_offset: subtracted from the labels, and from the number of classes;
      no example may have a smaller label.
    worker: which part to deliver, in [0, num_workers).
    num_workers: number of parts. They are consecutive examples and do not
      overlap.
    threads: images decoded at a time; 0 for one a CPU core.
    rows: (begin, end) of every batch to deliver; None for all of them. The
      other examples are read and not decoded.
  """

  image_size: int
  batch_size: int
  training: bool
  seed: int = 0
  start: int = 0
  shuffle_buffer: int = 16384
  net: str = ''
  preprocessing: str = ''
  labels_offset: int = 0
  worker: int = 0
  num_workers: int = 1
  threads: int = 0
  rows: tuple[int, int] | None = None

  def check(self) -> None:
    """Raises ValueError for the first number that is out of its range."""
    for name, lowest in _LOWEST.items():
      value = getattr(self, name)
      if value < lowest:
        raise ValueError(f'{name}: expected >= {lowest}; received {value}.')
    if self.start and not self.training:
      raise ValueError(
        f'start: expected 0 for evaluation; received {self.start}.'
      )
    if self.rows is None:
      return
    begin, end = self.rows
    if not (self.training and 0 <= begin < end <= self.batch_size):
      raise ValueError(
        'rows: expected (begin, end) within a training batch of '
        f'{self.batch_size}; received {self.rows}.'
      )


_LOWEST = {
  'image_size': 1,
  'batch_size': 1,
  'shuffle_buffer': 1,
  'start': 0,
  'labels_offset': 0,
  'num_workers': 1,
  'threads': 0,
}


class Split(NamedTuple):
  """What is known of an opened split.

  Attributes:
    num_examples: in the whole set, for schedules.
    count: examples that this stream delivers in an epoch: those in the folder,
      or the worker's part of them.
    num_classes: number of logits: labels are below it.
    channels: of the images.
    labels: name by label, or None where the folder names none.
  """

  num_examples: int
  count: int
  num_classes: int
  channels: int
  labels: dict[int, str] | None


def load(
  name: str,
  data_dir: str | os.PathLike,
  split: str,
  delivery: Delivery,
  num_classes: int | None = None,
) -> tuple[tf.data.Dataset, Split]:
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
    data_dir: the folder of the data set.
    split: one of the data set's splits.
    delivery: what to make of it.
    num_classes: for folders that do not say it themselves; None to take what
      they say, or what is known of the data set.

  Returns:
    Elements (images float32 [B, image_size, image_size, channels], labels
    int32 [B]), and what is known of the split. Damage found while reading
    surfaces as tf.errors.OpError: see `slim.datasets.records.explain`.

  Raises:
    slim.errors.UnknownNameError: no such data set, split or preprocessing.
    slim.errors.DataError: no files, or one of them is damaged.
    ValueError: a number is out of its range.
  """
  delivery.check()
  dataset = errors.lookup(DATASETS, name, 'data set')
  if dataset.splits:
    errors.lookup(dict.fromkeys(dataset.splits), split, f'split of {name}')
  chosen = preprocessing.get(
    delivery.preprocessing or preprocessing.name_for(name, delivery.net)
  )
  if dataset.storage == 'records':
    found = shards.find(dataset, data_dir, split, num_classes)
    info, stream = _of_records(found, dataset, delivery)
    read = examples.parse
  else:
    source = _SOURCES[dataset.storage](data_dir, split, num_classes)
    info, stream = _of_source(source, dataset, delivery)
    read = source.read
  if delivery.rows is not None:
    stream, delivery = _only_rows(stream, delivery)
  if dataset.image_size and isinstance(chosen, contract.Batched):
    batches = _small(stream, dataset, info, delivery, chosen)
  else:
    if isinstance(chosen, contract.Batched):
      chosen = contract.single(chosen)
    batches = _photographs(stream, read, info, delivery, chosen)
  if delivery.labels_offset:
    info, batches = _shifted(info, batches, delivery.labels_offset)
  return batches.prefetch(tf.data.AUTOTUNE), info


def _shifted(
  info: Split, batches: tf.data.Dataset, offset: int
) -> tuple[Split, tf.data.Dataset]:
  """The same examples without the first `offset` labels."""
  if offset >= info.num_classes:
    raise errors.DataError(
      f'labels_offset: expected less than the {info.num_classes} classes; '
      f'received {offset}. Choose a smaller one.'
    )

  def shift(images, labels):
    message = (
      f'labels_offset: expected no label below {offset}; received one. Is '
      'label 0 a class here, and not the background?'
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
  shown = info._replace(num_classes=info.num_classes - offset, labels=names)
  return shown, batches.map(shift)


def _of_records(
  found: shards.Shards, dataset: catalog.Dataset, delivery: Delivery
) -> tuple[Split, tf.data.Dataset]:
  """The split, and its (position, serialized) pairs."""
  files = order.part_of_files(
    found.files, delivery.worker, delivery.num_workers
  )
  count = sum(file.count for file in files)
  info = Split(
    num_examples=found.num_examples,
    count=count,
    num_classes=found.num_classes,
    channels=dataset.channels,
    labels=found.labels,
  )
  if not delivery.training:
    return info, order.in_file_order(files)
  return info, order.shuffled(
    files,
    seed=delivery.seed,
    start=delivery.start,
    # A larger window than the split would only tie the order to its size.
    window=min(delivery.shuffle_buffer, count),
  )


def _of_source(
  source: sources.Source, dataset: catalog.Dataset, delivery: Delivery
) -> tuple[Split, tf.data.Dataset]:
  """The split, and its (position, index) pairs."""
  begin, end = order.part_of(
    source.count, delivery.worker, delivery.num_workers
  )
  info = Split(
    num_examples=source.count,
    count=end - begin,
    num_classes=source.num_classes,
    channels=dataset.channels,
    labels=source.labels,
  )
  if not delivery.training:
    return info, tf.data.Dataset.range(begin, end).enumerate()
  stream = order.shuffled_indices(
    end - begin, seed=delivery.seed, start=delivery.start
  )
  return info, stream.map(lambda position, index: (position, begin + index))


def _only_rows(
  stream: tf.data.Dataset, delivery: Delivery
) -> tuple[tf.data.Dataset, Delivery]:
  """Leaves the other rows of each batch out; batches become so small."""
  begin, end = delivery.rows

  def wanted(position, _):
    row = (position - delivery.start) % delivery.batch_size
    return (row >= begin) & (row < end)

  return (
    stream.filter(wanted),
    dataclasses.replace(delivery, batch_size=end - begin, rows=None),
  )


def _seeds(positions: tf.Tensor, delivery: Delivery) -> tf.Tensor:
  """Seeds int64 [..., 2] of positions int64 [...].

  A position never comes twice, so each visit of an example has its own seed;
  and no two workers share one.
  """
  own = positions * delivery.num_workers + delivery.worker
  key = tf.constant(delivery.seed, tf.int64)
  return tf.stack([tf.fill(tf.shape(own), key), own], axis=-1)


def _small(
  stream: tf.data.Dataset,
  dataset: catalog.Dataset,
  info: Split,
  delivery: Delivery,
  chosen: contract.Batched,
) -> tf.data.Dataset:
  """Decodes and preprocesses images of one size, a batch at a time."""
  act = chosen.train if delivery.training else chosen.evaluate
  shape = (dataset.image_size, dataset.image_size, dataset.channels)

  def decode(positions, serialized):
    images, labels = examples.decode_png(serialized, shape, info.num_classes)
    seeds = _seeds(positions, delivery)
    return act(images, seeds, delivery.image_size), labels

  return stream.batch(delivery.batch_size).map(
    decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
  )


def _photographs(
  stream: tf.data.Dataset,
  read: abc.Callable[[tf.Tensor], examples.Stored],
  info: Split,
  delivery: Delivery,
  chosen: contract.Single,
) -> tf.data.Dataset:
  """Decodes and preprocesses photographs, each by itself, then batches."""
  stages = chosen.train if delivery.training else chosen.evaluate

  def decode(position, element):
    stored = read(element)
    photograph = photographs.of_encoded(
      stored.encoded,
      image_format=stored.image_format,
      size=stored.size,
      boxes=stored.boxes,
      channels=info.channels,
    )
    seed = _seeds(position, delivery)
    image, numbers = stages.each(photograph, seed, delivery.image_size)
    return image, numbers, examples.check_labels(stored.label, info.num_classes)

  def finish(images, numbers, labels):
    return stages.together(images, numbers), labels

  decoded = stream.map(
    decode,
    num_parallel_calls=delivery.threads or os.cpu_count() or 1,
    deterministic=True,
  )
  return decoded.batch(delivery.batch_size).map(
    finish, num_parallel_calls=1, deterministic=True
  )
