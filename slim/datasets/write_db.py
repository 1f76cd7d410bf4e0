"""Writes image databases as Caffe2's make_image_db does."""

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

_COMMIT_TOGETHER = 1000  # records
# A bound that no disk reaches; the file is as large as what is in it.
_LMDB_MAP_BYTES = 2**40
_MOST_LABELS = 10**6


# Begins what is written whole or not at all: an object with `put`.
_Begin = abc.Callable[[], contextlib.AbstractContextManager[Any]]


@dataclasses.dataclass(frozen=True)
class Images:
  """What is to be written.

  Attributes:
    count: of the images.
    labels: name by label, or None.
    stream: `examples.Stored`, `count` of them.
    skipped: files that were left out as unreadable, 'name: reason'.
  """

  count: int
  labels: dict[int, str] | None
  stream: tf.data.Dataset
  skipped: tuple[str, ...] = ()


def images_of(
  dataset: catalog.Dataset,
  data_dir: str | os.PathLike[str],
  split: str,
  skip_corrupt: bool = False,
) -> Images:
  """Opens a split to copy its images.

  Those of TFRecord files are copied as they are stored there, files of a folder
  as `photographs.images.to_stored` makes them.

  Args:
    dataset: of which the folder is, of TFRecord files or of images.
    data_dir: the folder.
    split: prefix of the files, or name of the folder.
    skip_corrupt: leave out files that are no images. They are looked for here,
      by decoding all of them.

  Returns:
    Images in the order of the files.

  Raises:
    slim.errors.DataError: they cannot be read; names all files of a folder that
      are no images.
  """
  if dataset.storage == 'folder':
    return _of_folder(data_dir, split, skip_corrupt)
  found = shards.find(dataset, data_dir, split)
  stream = order.in_file_order(found.files).map(
    lambda position, serialized: examples.parse(serialized)
  )
  return Images(sum(f.count for f in found.files), found.labels, stream)


def _of_folder(
  data_dir: str | os.PathLike[str], split: str, skip_corrupt: bool
) -> Images:
  files = image_folder.find(data_dir, split)
  skipped = image_files.unreadable(files.paths)
  if skipped and (not skip_corrupt or len(skipped) == len(files.paths)):
    source = os.fspath(pathlib.Path(data_dir) / split)
    raise shard_writer.refusal(source, list(skipped.values()))
  kept = [i for i in range(len(files.paths)) if i not in skipped]

  def read(index: int) -> tuple[bytes, bytes, tuple[int, int], int]:
    image = image_files.read(files.paths[index], image_contents.to_stored)
    return image.content, b'', (-1, -1), files.labels[index]

  stream = tf.data.Dataset.from_tensor_slices(kept).map(
    functools.partial(sources.from_python, read),
    num_parallel_calls=tf.data.AUTOTUNE,
    deterministic=True,
  )
  said = tuple(map(str, skipped.values()))
  return Images(len(kept), files.classes, stream, said)


def of_classes(
  images: Images, classes: abc.Sequence[str], most: int = 0
) -> Images:
  """The images of some classes alone, as a data set of these classes.

  Args:
    images: of all.
    classes: names, their first words (ImageNet's synsets, as n02958343), or
      labels; in the order of their new labels, from 0.
    most: images of a class, the first ones; 0 for all.

  Returns:
    The images, in their order; they are counted by reading them once.

  Raises:
    slim.errors.DataError: there is no such class, one is named twice, or there
      is none of its images.
  """
  names = images.labels or {}
  chosen = [_label_of(names, name) for name in classes]
  if len(set(chosen)) < len(chosen):
    raise errors.DataError(
      f'classes: expected each class once; received {", ".join(classes)}. '
      'Leave the second out.'
    )
  stream = _renumbered(images.stream, chosen, most)
  found = progress.Progress(stream, unit=' images counted')
  counts = np.bincount(
    [int(stored.label) for stored in found], minlength=len(chosen)
  )
  if not counts.all():
    raise errors.DataError(
      f'classes: expected images of each class; received none of '
      f'{classes[int(counts.argmin())]}. Leave it out, or choose another split.'
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
  """The images of the chosen labels, as 0, 1, ...; see `of_classes`."""
  # New label by label; -1 for what is left out.
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
    place = tf.maximum(stored.label, 0)
    if most:
      is_wanted &= seen[place] < most
    own = tf.one_hot(place, len(chosen), dtype=tf.int64)
    seen += own * tf.cast(is_wanted, tf.int64)
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
  """The label that a text means, see `of_classes`."""
  for word_of in (str.strip, _first_word):
    found = [label for label, text in labels.items() if word_of(text) == name]
    if len(found) == 1:
      return found[0]
  if name.isascii() and name.isdigit() and int(name) < _MOST_LABELS:
    return int(name)
  known = ', '.join(list(labels.values())[:10]) or 'none that has a name'
  raise errors.DataError(
    f'classes: expected names, their first words or labels, of {known}'
    f'{" and more" if len(labels) > 10 else ""}; received {name!r}.'
    f'{errors.did_you_mean(name, labels.values(), " Choose among them.")}'
  )


def write(
  images: Images,
  path: str | os.PathLike[str],
  *,
  kind: str = 'lmdb',
  shuffle_seed: int | None = None,
) -> int:
  """Writes a database, whole or not at all.

  It is made in a hidden folder beside `path` and renamed when it is complete.

  Args:
    images: what to write.
    path: of the database, a folder; must not exist.
    kind: one of `databases.KINDS`.
    shuffle_seed: of the order of the keys, for readers that follow them as
      Caffe2 does; None for the order of the images.

  Returns:
    The number of images.

  Raises:
    slim.errors.DataError: `path` exists or cannot be written, the package is
      missing, or an image cannot be read.
  """
  target = pathlib.Path(path)
  writer = errors.lookup(_WRITERS, kind, 'kind of database')
  package = databases.package(kind)
  if os.path.lexists(target):
    raise errors.DataError(
      f'{target}: expected a name that is free; received one that is taken. '
      'Remove it, or choose another --output_db.'
    )
  try:
    with disk.making_folder(target) as made:
      _fill(writer(package, made), images, shuffle_seed)
  except records.FAILURES as error:
    raise errors.DataError(
      'Reading the images: expected whole files; received '
      f'"{records.message_of(error)}". Convert or copy them again.'
    ) from error
  # plyvel's input and output errors are OSErrors, LMDB's a class of its own.
  except (OSError, package.Error) as error:
    raise errors.DataError(
      f'{target}: expected a folder that can be written and has space; '
      f'received "{error}". Free some, or choose another --output_db.'
    ) from error
  return images.count


def verify(
  images: Images, path: str | os.PathLike[str], shuffle_seed: int | None = None
) -> int:
  """Reads a database, and compares every record with its image.

  Args:
    images: what was written.
    path: of the database.
    shuffle_seed: see `write`.

  Returns:
    The number of images.

  Raises:
    slim.errors.DataError: it cannot be read, or holds something else; names the
      first record.
  """
  database = databases.open_database(path)
  if database.count != images.count:
    raise errors.DataError(
      f'{path}: expected {images.count} images, received {database.count}. '
      'Make it again, or give the flags that made it.'
    )
  for number, record in _records(images, shuffle_seed):
    if database.read(number) != record:
      raise errors.DataError(
        f'{path}, key {number:08d}: expected the image and the label that the '
        'data set has there, received others. Make it again, or give the flags '
        'that made it.'
      )
  return images.count


def _records(
  images: Images, shuffle_seed: int | None
) -> abc.Iterator[tuple[int, bytes]]:
  """(Place in the order of the keys, record) of every image."""
  numbers = np.arange(images.count)
  if shuffle_seed is not None:
    np.random.default_rng(shuffle_seed).shuffle(numbers)
  made = map(_record, images.stream.as_numpy_iterator())
  bar = progress.Progress(made, total=images.count, unit=' images')
  return zip(map(int, numbers), bar, strict=True)


def _fill(
  opened: contextlib.AbstractContextManager[_Begin],
  images: Images,
  shuffle_seed: int | None,
) -> None:
  records_left = _records(images, shuffle_seed)
  with opened as begin:
    while together := list(itertools.islice(records_left, _COMMIT_TOGETHER)):
      with begin() as batch:
        for number, record in together:
          batch.put(b'%08d' % number, record)


def _record(stored: examples.Stored) -> bytes:
  # Of pixels the format is part of the image; of files their content says it.
  is_raw = stored.image_format == tensor_protos.RAW
  height, width = map(int, stored.size)
  return tensor_protos.encode(
    tensor_protos.Image(
      encoded=stored.encoded,
      image_format=tensor_protos.RAW if is_raw else b'',
      size=(height, width),
      label=int(stored.label),
    )
  )


@contextlib.contextmanager
def _lmdb(
  package: types.ModuleType, path: pathlib.Path
) -> abc.Iterator[_Begin]:
  # No lock: nobody else knows the folder yet.
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
