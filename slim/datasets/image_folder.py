"""Reads a user's image files in place: <data_dir>/<split>/<class>/*."""

import functools
import hashlib
import os
import pathlib
from typing import NamedTuple

from slim import errors
from slim.datasets import labels
from slim.datasets import sources
from slim.datasets.photographs import image_files
from slim.datasets.photographs import image_folders
from slim.datasets.photographs import images
from slim.datasets.records import label_lines

# Without labels.txt, the folders of this split define the classes.
TRAINING_SPLIT = 'train'


class Files(NamedTuple):
  """The files of a split.

  Attributes:
    paths: paths of the files, sorted by class and name; at least one.
    labels: label of each file, in the order of `paths`.
    classes: name by label, including classes without files in this split.
  """

  paths: list[pathlib.Path]
  labels: list[int]
  classes: dict[int, str]


def find_classes(data_dir: str | os.PathLike[str]) -> dict[int, str]:
  """Finds the classes of all splits, in labels.txt or the training split.

  Args:
    data_dir: the folder that holds a folder for each split.

  Returns:
    Name by label, from 0; at least one.

  Raises:
    slim.errors.DataError: both are missing, or a name is invalid or occurs
      twice.
  """
  folder = pathlib.Path(data_dir) / TRAINING_SPLIT
  names = [path.name for path in _folders(folder)]
  named = labels.read(data_dir, first_label=0, names=names)
  if named:
    if twice := label_lines.repeated([*named.values()]):
      raise errors.DataError(
        f'{os.fspath(data_dir)}/{labels.FILE_NAME}: expected each name once, '
        f'because a class has one folder; received {twice[0]!r} twice. Correct '
        'the file.'
      )
    return named
  if not names:
    raise errors.DataError(
      f'{os.fspath(data_dir)}: expected {labels.FILE_NAME} with the classes, '
      f'or a folder {TRAINING_SPLIT} with a folder for each; received neither. '
      f'Write {labels.FILE_NAME}, one name per line, in the order of training.'
    )
  return dict(enumerate(names))


def find(data_dir: str | os.PathLike[str], split: str) -> Files:
  """Lists the files of a split; skips hidden files and folders.

  Args:
    data_dir: the folder that holds a folder for each split.
    split: name of the split's folder, which holds a folder for each class.

  Raises:
    slim.errors.DataError: the folder is missing or has no files, the classes
      are unknown, a folder is not among the classes, or a class holds a broken
      link or a folder.
  """
  folder = pathlib.Path(data_dir) / split
  folders = _folders(folder)
  if not folders:
    raise errors.DataError(
      f'{folder}: expected a folder of images for each class; received none. '
      'Put the images into such folders, or choose another --data_dir.'
    )
  classes = find_classes(data_dir)
  by_name = {name: label for label, name in classes.items()}
  unknown = [path.name for path in folders if path.name not in by_name]
  if unknown:
    raise errors.DataError(
      f'{folder}: expected folders of the classes of {_origin(data_dir)}, '
      f'{errors.listed(sorted(by_name))}; received '
      f'{errors.listed(path.name for path in folders)}. Not among them: '
      f'{errors.listed(unknown)}. Rename or move these, or list all classes in '
      f'{labels.FILE_NAME}.'
    )
  paths: list[pathlib.Path] = []
  numbers: list[int] = []
  for path in folders:
    found = image_folders.files(path)
    paths += found
    numbers += [by_name[path.name]] * len(found)
  if not paths:
    raise errors.DataError(
      f'{folder}: expected images in the folders of its classes; received '
      'none. Choose another --data_dir.'
    )
  return Files(paths, numbers, classes)


def open_split(
  data_dir: str | os.PathLike[str], split: str, num_classes: int | None
) -> sources.ExampleSource:
  """Opens a split; images are delivered upright and without transparency.

  Labels are those of `find_classes`. A file that is not an image raises an
  error that names it when it is read.

  Args:
    data_dir: the folder that holds a folder for each split.
    split: name of the split's folder, which holds a folder for each class.
    num_classes: number of classes that the caller requests, or None.

  Returns:
    The source, with at least one example.

  Raises:
    slim.errors.DataError: as `find`, or there are more classes than the
      caller requests.
  """
  files = find(data_dir, split)
  needed = max(files.classes) + 1
  if num_classes is not None and num_classes < needed:
    raise errors.DataError(
      f'num_classes: expected at least {needed}, the classes of '
      f'{_origin(data_dir)}; received {num_classes}. Leave it out.'
    )

  def read(index: int) -> tuple[bytes, bytes, tuple[int, int], int]:
    image = image_files.read(files.paths[index], images.to_decodable)
    return *image, files.labels[index]

  return sources.ExampleSource(
    len(files.paths),
    num_classes or needed,
    files.classes,
    functools.partial(sources.from_python, read),
    _digest(files),
  )


def _digest(files: Files) -> str:
  """Returns 16 hex digits, equal for equal names and labels of all files."""
  found = hashlib.sha256()
  for path, label in zip(files.paths, files.labels, strict=True):
    found.update(os.fsencode(f'{label}/{files.classes[label]}/{path.name}\0'))
  return found.hexdigest()[:16]


def _origin(data_dir: str | os.PathLike[str]) -> pathlib.Path:
  """Returns the path that defines the classes."""
  path = pathlib.Path(data_dir) / labels.FILE_NAME
  return path if path.is_file() else path.with_name(TRAINING_SPLIT)


def _folders(folder: pathlib.Path) -> list[pathlib.Path]:
  return image_folders.folders(folder) if folder.is_dir() else []
