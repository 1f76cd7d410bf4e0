"""A user's own images, read where they lie: <data_dir>/<split>/<class>/*."""

import os
import pathlib

import tensorflow as tf

from slim import errors
from slim.datasets import examples
from slim.datasets import labels
from slim.datasets import sources
from slim.datasets.photographs import image_folders


def open_split(
  data_dir: str | os.PathLike, split: str, num_classes: int | None
) -> sources.ExampleSource:
  """Lists the images of a split.

  Labels are from 0, in the order of labels.txt if `data_dir` has one, else of
  the names of the split's folders. Hidden files and folders are passed over,
  and what is no image is found when it is read.

  Args:
    data_dir: a folder for each split.
    split: name of its folder, in which is a folder for each class.
    num_classes: what the caller wants it to be, or None.

  Returns:
    The source; at least one example.

  Raises:
    slim.errors.DataError: no such folder, no images, a class that labels.txt
      does not name, or more classes than the caller wants.
  """
  folder = pathlib.Path(data_dir) / split
  classes = _visible(folder, pathlib.Path.is_dir)
  if not classes:
    raise errors.DataError(
      f'{folder}: expected a folder of images for each class; received none. '
      'Put the images into such folders, or choose another --data_dir.'
    )
  named = labels.read(data_dir, first_label=0)
  names = named or {i: path.name for i, path in enumerate(classes)}
  by_name = {name: label for label, name in names.items()}
  paths, numbers = [], []
  for path in classes:
    image_folders.check_name(folder, path.name)
    if path.name not in by_name:
      raise errors.DataError(
        f'{path}: expected a class that {labels.FILE_NAME} names; received '
        'another. Add it to that file, or move the folder away.'
      )
    found = _visible(path, pathlib.Path.is_file)
    paths += [os.fsencode(file) for file in found]
    numbers += [by_name[path.name]] * len(found)
  if not paths:
    raise errors.DataError(
      f'{folder}: expected images in the folders of its classes; received '
      'none. Choose another --data_dir.'
    )
  least = max(names) + 1
  if num_classes is not None and num_classes < least:
    raise errors.DataError(
      f'num_classes: expected at least {least}, the classes of {folder}; '
      f'received {num_classes}. Leave it out.'
    )
  return sources.ExampleSource(
    count=len(paths),
    num_classes=num_classes or least,
    labels=names,
    read=_reader(tf.constant(paths), tf.constant(numbers, tf.int64)),
  )


def _reader(paths: tf.Tensor, numbers: tf.Tensor):
  def read(index):
    return examples.Stored(
      encoded=tf.io.read_file(paths[index]),
      image_format=tf.constant(b''),
      size=tf.constant([-1, -1]),
      boxes=tf.zeros([0, 4]),
      label=numbers[index],
    )

  return read


def _visible(folder: pathlib.Path, is_wanted) -> list[pathlib.Path]:
  if not folder.is_dir():
    return []
  return sorted(
    path
    for path in folder.iterdir()
    if not path.name.startswith('.') and is_wanted(path)
  )
