"""Writes MNIST as TFRecord files, in the format of the 2017 code."""

import os
import pathlib
import tempfile
from collections import abc
from typing import NamedTuple

import tensorflow as tf
import tqdm
from absl import logging

from slim import errors
from slim.datasets import mnist
from slim.datasets import mnist_source
from slim.datasets import records

LABELS_FILE = 'labels.txt'

_ENCODE_TOGETHER = 1000  # images
_BOX_KEYS = ('xmin', 'xmax', 'ymin', 'ymax')
_NO_REQUEST = mnist_source.Request()


class Report(NamedTuple):
  """What a conversion did.

  Attributes:
    written: False when complete files were there and have been kept.
    counts: number of examples by split.
    source: where they came from; '' when kept.
  """

  written: bool
  counts: dict[str, int]
  source: str


def file_name(split: str) -> str:
  """Returns the name of a split's file, 'train-mnist.tfrecord'."""
  return f'{split}-{mnist.NAME}.tfrecord'


def convert(
  dataset_dir: str,
  *,
  source: str = 'auto',
  request: mnist_source.Request = _NO_REQUEST,
  overwrite: bool = False,
) -> Report:
  """Writes a file for each split and `labels.txt`, all or none.

  Files are written into a hidden folder inside `dataset_dir` and renamed when
  all are whole, so a conversion that is killed leaves nothing a reader takes.
  Files of an earlier conversion are kept if all are there and undamaged.

  Args:
    dataset_dir: where to write; made if it does not exist.
    source: a key of `slim.datasets.mnist_source.SOURCES`.
    request: passed on to the source.
    overwrite: write even if complete files are there.

  Returns:
    What was done.

  Raises:
    slim.errors.DataError: the source is missing or damaged, or the folder
      cannot be written.
  """
  fetch = errors.lookup(mnist_source.SOURCES, source, 'source')
  folder = pathlib.Path(dataset_dir)
  _check_apart(folder, request.source_dir)
  kept = None if overwrite else _complete_counts(folder)
  if kept:
    return Report(False, kept, '')
  data = fetch(request)
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='.converting-', dir=folder) as made:
      staging = pathlib.Path(made)
      for split, examples in data.splits.items():
        _write_records(staging / file_name(split), examples, split)
      _write_labels(staging / LABELS_FILE)
      _move_into_place(staging, folder)
  except (OSError, tf.errors.OpError) as error:
    raise errors.DataError(
      f'{folder}: expected a folder that can be written and has space; '
      f'received "{error}". Free some, or choose another --dataset_dir.'
    ) from error
  counts = {split: len(part.labels) for split, part in data.splits.items()}
  return Report(True, counts, data.description)


def _check_apart(folder: pathlib.Path, source_dir: str | None) -> None:
  if source_dir and folder.resolve() == pathlib.Path(source_dir).resolve():
    raise errors.DataError(
      f'{folder}: expected different folders to read from and to write to, '
      'because a reader takes every file train-* for records; received one. '
      'Choose another --dataset_dir.'
    )


def _complete_counts(folder: pathlib.Path) -> dict[str, int] | None:
  """Counts the examples of an undamaged earlier conversion; None if none."""
  paths = {split: folder / file_name(split) for split in mnist.SPLITS}
  expected = [*paths.values(), folder / LABELS_FILE]
  if not all(path.is_file() for path in expected):
    return None
  try:
    return {split: records.verify(path) for split, path in paths.items()}
  except errors.DataError as error:
    logging.info('%s Converting it again now.', error)
    return None


def _write_records(
  path: pathlib.Path, split: mnist_source.Split, name: str
) -> None:
  """Writes one split and brings it to the disk."""
  with (
    tf.io.TFRecordWriter(os.fspath(path)) as writer,
    # None: a bar only where standard error is a terminal.
    tqdm.tqdm(total=len(split.labels), desc=name, disable=None) as progress,
  ):
    for serialized in _serialized(split):
      writer.write(serialized)
      progress.update()
  _sync(path)


def _serialized(split: mnist_source.Split) -> abc.Iterator[bytes]:
  for start in range(0, len(split.labels), _ENCODE_TOGETHER):
    together = slice(start, start + _ENCODE_TOGETHER)
    encoded = tf.io.encode_png(split.images[together, :, :, None]).numpy()
    for png, label in zip(encoded, split.labels[together], strict=True):
      yield _example(png, int(label)).SerializeToString()


def _example(png: bytes, label: int) -> tf.train.Example:
  """Makes an example with the keys that the 2017 readers expect.

  As in 2017 the colorspace says RGB and there are empty lists of boxes, so that
  one parser serves all data sets.
  """
  size = _ints(mnist.IMAGE_SIZE)
  features = {
    'image/encoded': _bytes(png),
    'image/format': _bytes(b'png'),
    'image/class/label': _ints(label),
    'image/class/text': _bytes(mnist.CLASS_NAMES[label].encode()),
    'image/height': size,
    'image/width': size,
    'image/channels': _ints(mnist.CHANNELS),
    'image/colorspace': _bytes(b'RGB'),
  }
  for key in _BOX_KEYS:
    features[f'image/object/bbox/{key}'] = tf.train.Feature(
      float_list=tf.train.FloatList()
    )
  return tf.train.Example(features=tf.train.Features(feature=features))


def _bytes(value: bytes) -> tf.train.Feature:
  return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _ints(value: int) -> tf.train.Feature:
  return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def _write_labels(path: pathlib.Path) -> None:
  """Writes lines `<id>:<name>`, ids from 0."""
  lines = (f'{label}:{name}\n' for label, name in enumerate(mnist.CLASS_NAMES))
  path.write_text(''.join(lines), encoding='utf-8')
  _sync(path)


def _move_into_place(staging: pathlib.Path, folder: pathlib.Path) -> None:
  """Replaces the files of `folder`; splits of two conversions never meet.

  The old files go first, and labels.txt comes last: without it, the next
  conversion starts over.
  """
  names = [*map(file_name, mnist.SPLITS), LABELS_FILE]
  for name in reversed(names):
    (folder / name).unlink(missing_ok=True)
  for name in names:
    (staging / name).rename(folder / name)
  _sync(folder)


def _sync(path: pathlib.Path) -> None:
  """Brings a file or folder to the disk, so that a power cut keeps it."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
