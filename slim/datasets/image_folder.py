"""A user's own images, read where they lie: <data_dir>/<split>/<class>/*."""

import os
import pathlib
from collections import abc
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from slim import errors
from slim.datasets import examples
from slim.datasets import labels
from slim.datasets import sources
from slim.datasets.photographs import image_files
from slim.datasets.photographs import image_folders
from slim.datasets.photographs import images

# The split whose folders are the classes where no labels.txt names them.
TRAINING_SPLIT = 'train'

_MOST_LISTED = 20  # names in a message


class Files(NamedTuple):
  """The files of a split.

  Attributes:
    paths: of the files, by class and name; at least one.
    labels: of each, in the order of `paths`.
    classes: name by label; classes without files in this split are among them.
  """

  paths: list[pathlib.Path]
  labels: list[int]
  classes: dict[int, str]


def find_classes(data_dir: str | os.PathLike) -> dict[int, str]:
  """The classes of all splits: of labels.txt, else of the training split.

  Args:
    data_dir: a folder for each split.

  Returns:
    Name by label, from 0; at least one.

  Raises:
    slim.errors.DataError: there is neither, or a name that cannot be.
  """
  named = labels.read(data_dir, first_label=0)
  if named:
    return named
  folder = pathlib.Path(data_dir) / TRAINING_SPLIT
  names = [path.name for path in _visible(folder, pathlib.Path.is_dir)]
  if not names:
    raise errors.DataError(
      f'{os.fspath(data_dir)}: expected {labels.FILE_NAME} with the classes, '
      f'or a folder {TRAINING_SPLIT} with a folder for each; received neither. '
      f'Write {labels.FILE_NAME}, one name a line, in the order of training.'
    )
  for name in names:
    image_folders.check_name(folder, name)
  return dict(enumerate(names))


def find(data_dir: str | os.PathLike, split: str) -> Files:
  """Lists the files of a split; hidden files and folders are passed over.

  Args:
    data_dir: a folder for each split.
    split: name of its folder, in which is a folder for each class.

  Returns:
    The files.

  Raises:
    slim.errors.DataError: no such folder, no files, nothing says the classes,
      or a folder is of another class.
  """
  folder = pathlib.Path(data_dir) / split
  folders = _visible(folder, pathlib.Path.is_dir)
  if not folders:
    raise errors.DataError(
      f'{folder}: expected a folder of images for each class; received none. '
      'Put the images into such folders, or choose another --data_dir.'
    )
  for path in folders:
    image_folders.check_name(folder, path.name)
  classes = find_classes(data_dir)
  by_name = {name: label for label, name in classes.items()}
  strange = [path.name for path in folders if path.name not in by_name]
  if strange:
    received = _listed(path.name for path in folders)
    raise errors.DataError(
      f'{folder}: expected folders of the classes of {_origin(data_dir)}, '
      f'{_listed(by_name)}; received {received}. Not among them: '
      f'{_listed(strange)}. Rename or move these, or list all classes in '
      f'{labels.FILE_NAME}.'
    )
  paths, numbers = [], []
  for path in folders:
    found = _visible(path, pathlib.Path.is_file)
    paths += found
    numbers += [by_name[path.name]] * len(found)
  if not paths:
    raise errors.DataError(
      f'{folder}: expected images in the folders of its classes; received '
      'none. Choose another --data_dir.'
    )
  return Files(paths, numbers, classes)


def open_split(
  data_dir: str | os.PathLike, split: str, num_classes: int | None
) -> sources.ExampleSource:
  """Opens a split, whose images are upright and without transparency.

  Labels are those of `find_classes`. What is no image is found when it is read,
  and named.

  Args:
    data_dir: a folder for each split.
    split: name of its folder, in which is a folder for each class.
    num_classes: what the caller wants it to be, or None.

  Returns:
    The source; at least one example.

  Raises:
    slim.errors.DataError: as `find`, or more classes than the caller wants.
  """
  files = find(data_dir, split)
  least = max(files.classes) + 1
  if num_classes is not None and num_classes < least:
    raise errors.DataError(
      f'num_classes: expected at least {least}, the classes of '
      f'{_origin(data_dir)}; received {num_classes}. Leave it out.'
    )
  return _Source(files, num_classes or least)


class _Source(sources.ExampleSource):
  """The images of a split, by their numbers."""

  def __init__(self, files: Files, num_classes: int) -> None:
    super().__init__(len(files.paths), num_classes, files.classes)
    self._paths = tf.constant([os.fsencode(path) for path in files.paths])
    self._numbers = tf.constant(files.labels, tf.int64)

  def read(self, index: tf.Tensor) -> examples.Stored:
    """See `sources.ExampleSource.read`."""
    encoded, image_format, size = tf.numpy_function(
      _columns,
      [self._paths[index]],
      [tf.string, tf.string, tf.int32],
      # tf.data may then run it ahead and in any order.
      stateful=False,
    )
    return examples.Stored(
      encoded=tf.ensure_shape(encoded, []),
      image_format=tf.ensure_shape(image_format, []),
      size=tf.ensure_shape(size, [2]),
      boxes=tf.zeros([0, 4]),
      label=self._numbers[index],
    )


def _columns(
  path: bytes | np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """(encoded, format, size int32 [2]) of a file."""
  # An array without dimensions where no graph calls it.
  path = np.asarray(path, object).item()
  image = image_files.read(path, images.to_decodable)
  return (
    # As objects: NumPy would cut zero bytes off the end of a string.
    np.array(image.content, object),
    np.array(image.image_format, object),
    np.array(image.size, np.int32),
  )


def _origin(data_dir: str | os.PathLike) -> pathlib.Path:
  """What says the classes."""
  path = pathlib.Path(data_dir) / labels.FILE_NAME
  return path if path.is_file() else path.with_name(TRAINING_SPLIT)


def _listed(names: abc.Iterable[str]) -> str:
  names = sorted(names)
  more = len(names) - _MOST_LISTED
  shown = ', '.join(names[:_MOST_LISTED])
  return f'{shown} and {more} more' if more > 0 else shown


def _visible(folder: pathlib.Path, is_wanted) -> list[pathlib.Path]:
  if not folder.is_dir():
    return []
  return sorted(
    path
    for path in folder.iterdir()
    if not path.name.startswith('.') and is_wanted(path)
  )
