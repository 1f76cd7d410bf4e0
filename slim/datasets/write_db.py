"""Writes image databases in the format of Caffe2's make_image_db."""

import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
import types
from collections import abc
from typing import Any

import numpy as np
import tensorflow as tf

from slim import errors
from slim.datasets import catalog
from slim.datasets import examples
from slim.datasets import image_folder
from slim.datasets import shards
from slim.datasets import sources
from slim.datasets.files import databases
from slim.datasets.files import tensor_protos
from slim.datasets.photographs import image_files
from slim.datasets.photographs import images as image_contents
from slim.datasets.records import disk
from slim.datasets.records import order
from slim.datasets.records import progress
from slim.datasets.records import records
from slim.datasets.records import shard_writer

_RECORDS_PER_COMMIT = 1000  # records
# The address space of the map; the file grows only with its content.
_LMDB_MAP_BYTES = 2**40
_MAX_LABELS = 10**6


# Begins an atomic batch of writes: a context manager of an object with `put`.
_Begin = abc.Callable[[], contextlib.AbstractContextManager[Any]]


@dataclasses.dataclass(frozen=True)
class Images:
  """The images to write.

  Attributes:
    count: number of images.
    labels: name by label, or None.
    stream: `count` elements `examples.Stored`.
    skipped: skipped unreadable files, as 'name: reason'.
  """

  count: int
  labels: dict[int, str] | None
  stream: tf.data.Dataset
  skipped: tuple[str, ...] = ()


def open_images(
  dataset: catalog.Dataset,
  data_dir: str | os.PathLike[str],
  split: str,
  skip_corrupt: bool = False,
) -> Images:
  """Opens a split to copy its images.

  Images in TFRecord files are copied as they are stored. Files of a folder are
  converted by `photographs.images.to_stored`.

  Args:
    dataset: the data set of the folder, of TFRecord files or of image files.
    data_dir: the folder.
    split: prefix of the TFRecord files, or name of the image folder.
    skip_corrupt: skips files that are not images. To find them, this function
      decodes every file.

  Returns:
    Images in the order of the files.

  Raises:
    slim.errors.DataError: the files cannot be read. For a folder, the message
      names all files that are not images.
  """
  if dataset.storage == 'folder':
    return _folder_images(data_dir, split, skip_corrupt)
  found = shards.find(dataset, data_dir, split)
  stream = order.read_sequentially(found.files).map(
    lambda position, serialized: examples.parse(serialized)
  )
  return Images(sum(f.count for f in found.files), found.labels, stream)


def _folder_images(
  data_dir: str | os.PathLike[str], split: str, skip_corrupt: bool
) -> Images:
  files = image_folder.find(data_dir, split)
  skipped = image_files.unreadable(files.paths)
  if skipped and (not skip_corrupt or len(skipped) == len(files.paths)):
    source = os.fspath(pathlib.Path(data_dir) / split)
    raise shard_writer.refusal(source, list(skipped.values()))
  readable = [i for i in range(len(files.paths)) if i not in skipped]

  def read(index: int) -> tuple[bytes, bytes, tuple[int, int], int]:
    image = image_files.read(files.paths[index], image_contents.to_stored)
    return image.content, b'', (-1, -1), files.labels[index]

  stream = tf.data.Dataset.from_tensor_slices(readable).map(
    functools.partial(sources.from_python, read),
    num_parallel_calls=tf.data.AUTOTUNE,
    deterministic=True,
  )
  reasons = tuple(map(str, skipped.values()))
  return Images(len(readable), files.classes, stream, reasons)


def select_classes(
  images: Images, classes: abc.Sequence[str], most: int = 0
) -> Images:
  """Selects the images of some classes and renumbers their labels from 0.

  Reads all images once to count the selected ones.

  Args:
    images: images of all classes.
    classes: names, their first words (ImageNet's synsets, such as n02958343),
      or labels, in the order of the new labels.
    most: maximum number of images per class, the first ones; 0 selects all.

  Returns:
    The selected images, in the order of `images`.

  Raises:
    slim.errors.DataError: a class is unknown, is named twice, or has no
      images.
  """
  names = images.labels or {}
  chosen = [_label_of(names, name) for name in classes]
  if len(set(chosen)) < len(chosen):
    raise errors.DataError(
      f'classes: expected each class once; received {", ".join(classes)}. '
      'Remove the repeated one.'
    )
  stream = _renumbered(images.stream, chosen, most)
  found = progress.Progress(stream, unit=' images counted')
  counts = np.bincount(
    [int(stored.label) for stored in found], minlength=len(chosen)
  )
  if not counts.all():
    raise errors.DataError(
      f'classes: expected images of each class; received none of '
      f'{classes[int(counts.argmin())]}. Remove it, or choose another split.'
    )
  return dataclasses.replace(
    images,
    count=int(counts.sum()),
    labels={i: names.get(label, str(label)) for i, label in enumerate(chosen)},
    stream=stream,
  )


def _renumbered(
  stream: tf.data.Dataset, chosen: list[int], most: int
) -> tf.data.Dataset:
  """Selects the images of `chosen` labels and renumbers these from 0."""
  # New label by old label; -1 for labels that are not selected.
  renumbered = np.full(max(chosen) + 1, -1, np.int64)
  renumbered[chosen] = range(len(chosen))

  def renumber(stored: examples.Stored) -> examples.Stored:
    is_known = (stored.label >= 0) & (stored.label < len(renumbered))
    label = tf.gather(renumbered, tf.where(is_known, stored.label, 0))
    return stored._replace(label=tf.where(is_known, label, -1))

  def count(
    seen: tf.Tensor, stored: examples.Stored
  ) -> tuple[tf.Tensor, tuple[tf.Tensor, examples.Stored]]:
    is_wanted = stored.label >= 0
    index = tf.maximum(stored.label, 0)
    if most:
      is_wanted &= seen[index] < most
    one_hot = tf.one_hot(index, len(chosen), dtype=tf.int64)
    seen += one_hot * tf.cast(is_wanted, tf.int64)
    return seen, (is_wanted, stored)

  return (
    stream.map(renumber)
    .scan(tf.zeros([len(chosen)], tf.int64), count)
    .filter(lambda is_wanted, stored: is_wanted)
    .map(lambda is_wanted, stored: stored)
  )


def _first_word(text: str) -> str:
  return (text.replace(':', ' ').split() or [''])[0]


def _label_of(labels: dict[int, str], name: str) -> int:
  """Returns the label of a class given by name, first word or label."""
  for word_of in (str.strip, _first_word):
    found = [label for label, text in labels.items() if word_of(text) == name]
    if len(found) == 1:
      return found[0]
  if name.isascii() and name.isdigit() and int(name) < _MAX_LABELS:
    return int(name)
  known = ', '.join(list(labels.values())[:10]) or 'which have no names here'
  raise errors.DataError(
    f'classes: expected names, first words or labels of the classes ({known}'
    f'{" and more" if len(labels) > 10 else ""}); received {name!r}.'
    f'{errors.did_you_mean(name, labels.values(), " Choose one of these.")}'
  )


def write(
  images: Images,
  path: str | os.PathLike[str],
  *,
  kind: str = 'lmdb',
  shuffle_seed: int | None = None,
) -> int:
  """Writes a database atomically.

  The database is created in a hidden folder beside `path` and renamed when it
  is complete.

  Args:
    images: the images to write.
    path: folder of the database; may not exist.
    kind: one of `databases.KINDS`.
    shuffle_seed: seed of the key order, for readers that iterate over keys,
      as Caffe2 does. None keeps the order of the images.

  Returns:
    The number of images.

  Raises:
    slim.errors.DataError: `path` exists or is not writable, the package is
      missing, an image cannot be read, or a label or size cannot be written;
      the message names the key.
  """
  target = pathlib.Path(path)
  writer = errors.lookup(_WRITERS, kind, 'kind of database')
  package = databases.package(kind)
  if os.path.lexists(target):
    raise errors.DataError(
      f'{target}: expected a path that does not exist; received an existing '
      'one. Remove it, or choose another --output_db.'
    )
  try:
    with disk.create_folder(target) as made:
      _fill(writer(package, made), images, shuffle_seed)
  except records.FAILURES as error:
    raise errors.DataError(
      'Reading the images: expected undamaged files; received '
      f'"{records.message_of(error)}". Convert or copy them again.'
    ) from error
  # plyvel raises OSError for input and output errors; LMDB has its own class.
  except (OSError, package.Error) as error:
    raise errors.DataError(
      f'{target}: expected a writable folder with free space; received '
      f'"{error}". Free some space, or choose another --output_db.'
    ) from error
  return images.count


def verify(
  images: Images, path: str | os.PathLike[str], shuffle_seed: int | None = None
) -> int:
  """Reads a database and compares every record with its image.

  Args:
    images: the images that were written.
    path: folder of the database.
    shuffle_seed: the seed given to `write`.

  Returns:
    The number of images.

  Raises:
    slim.errors.DataError: the database cannot be read or differs from the
      images. The message names the first record that differs.
  """
  database = databases.open_database(path)
  if database.count != images.count:
    raise errors.DataError(
      f'{path}: expected {images.count} images, received {database.count}. '
      'Create it again, or pass the flags that created it.'
    )
  for number, record in _records(images, shuffle_seed):
    if database.read(number) != record:
      raise errors.DataError(
        f'{path}, key {number:08d}: expected the image and label of the data '
        'set at this position, received others. Create the database again, or '
        'pass the flags that created it.'
      )
  return images.count


def _records(images: Images, shuffle_seed: int | None) -> progress.Progress:
  """Returns (key number, record) of every image, with a progress bar."""
  numbers = np.arange(images.count)
  if shuffle_seed is not None:
    np.random.default_rng(shuffle_seed).shuffle(numbers)
  stream = images.stream.as_numpy_iterator()
  pairs = (
    (number, _record(number, stored))
    for number, stored in zip(map(int, numbers), stream, strict=True)
  )
  return progress.Progress(pairs, total=images.count, unit=' images')


def _fill(
  opened: contextlib.AbstractContextManager[_Begin],
  images: Images,
  shuffle_seed: int | None,
) -> None:
  # A failure of the database is reported below the bar, not on its line.
  with _records(images, shuffle_seed) as bar, opened as begin:
    records_left = iter(bar)
    while chunk := list(itertools.islice(records_left, _RECORDS_PER_COMMIT)):
      with begin() as batch:
        for number, record in chunk:
          batch.put(b'%08d' % number, record)


def _record(number: int, stored: examples.Stored) -> bytes:
  # Raw pixels need the format in the record; encoded files contain it.
  is_raw = stored.image_format == tensor_protos.RAW
  height, width = map(int, stored.size)
  image = tensor_protos.Image(
    encoded=stored.encoded,
    image_format=tensor_protos.RAW if is_raw else b'',
    size=(height, width),
    label=int(stored.label),
  )
  try:
    return tensor_protos.encode(image)
  except errors.DataError as error:
    raise errors.DataError(f'Key {number:08d}: {error}') from error


@contextlib.contextmanager
def _lmdb(
  package: types.ModuleType, path: pathlib.Path
) -> abc.Iterator[_Begin]:
  # No lock is needed: no other process knows the folder yet.
  environment = package.open(str(path), map_size=_LMDB_MAP_BYTES, lock=False)
  with contextlib.closing(environment):
    yield functools.partial(environment.begin, write=True)
    environment.sync(True)


@contextlib.contextmanager
def _leveldb(
  package: types.ModuleType, path: pathlib.Path
) -> abc.Iterator[_Begin]:
  database = package.DB(str(path), create_if_missing=True)
  with contextlib.closing(database):
    yield functools.partial(database.write_batch, sync=True)


_WRITERS = {'lmdb': _lmdb, 'leveldb': _leveldb}
