"""Finds the images of a folder that holds a folder for each class."""

import functools
import os
import pathlib
import stat
from collections import abc

from slim import errors
from slim.datasets.files import archives
from slim.datasets.photographs import labeled_images
from slim.datasets.records import label_lines

_not_a_file = functools.partial(
  errors.refusal, expected='an image file', remedy='Move it to another folder.'
)

BACKGROUND = 'background'  # the name of label 0


def read_labels(path: pathlib.Path) -> list[str]:
  """Reads names of classes, one per line.

  Returns:
    The names, in the order of the file.

  Raises:
    slim.errors.DataError: the file is unreadable or empty, or repeats a name.
  """
  try:
    # utf-8-sig accepts a file with or without a byte order mark.
    lines = path.read_text(encoding='utf-8-sig').splitlines()
  except (OSError, UnicodeDecodeError) as error:
    raise errors.DataError(
      f'{path}: expected a readable file with the name of a class on each '
      f'line; received "{error}". Check --labels_file.'
    ) from error
  names = [line.strip() for line in lines if line.strip()]
  twice = label_lines.repeated(names)
  if not names or twice:
    received = f'{twice[0]!r} twice' if twice else 'no name'
    raise errors.DataError(
      f'{path}: expected the name of a class on each line, each once; received '
      f'{received}. Correct the file.'
    )
  return names


def folders(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the visible folders in a folder, sorted.

  Raises:
    slim.errors.DataError: a name is refused by `check_name`.
    OSError: the folder cannot be read.
  """
  found = sorted(path for path in _visible(folder) if path.is_dir())
  for path in found:
    check_name(folder, path.name)
  return found


def class_folders(folder: pathlib.Path) -> list[str]:
  """Returns the names of the classes: visible folders in a folder, sorted.

  Raises:
    slim.errors.DataError: the folder does not exist or contains no folder, or
      a name is refused by `check_name`.
  """
  try:
    names = [path.name for path in folders(folder)]
  except OSError as error:
    raise errors.DataError(
      f'{folder}: expected a folder with a folder for each class; received '
      f'"{error}". Check the path.'
    ) from error
  if not names:
    raise errors.DataError(
      f'{folder}: expected a folder for each class; received none. Put the '
      'images into folders with the names of their classes.'
    )
  return names


def check_name(folder: pathlib.Path, name: str) -> None:
  """Refuses a class name that cannot be a line of a labels file.

  Args:
    folder: the parent of the class folder, for the message.
    name: name of the class folder, as Python decodes file names.

  Raises:
    slim.errors.DataError: the name is not UTF-8, has a line end or a control
      character, or ends with a space. The message says which.
  """
  problem = label_lines.find_problem(name)
  if problem:
    raise errors.DataError(
      f'{folder}: expected folders whose names can be lines of '
      f'labels.txt; received {os.fsencode(name)!r}: {problem}. Rename '
      'it.'
    )


def find(
  folder: pathlib.Path, class_names: abc.Sequence[str], first_label: int
) -> list[labeled_images.Item]:
  """Finds the files of all classes; ignores hidden files.

  Args:
    folder: the folder that holds a folder for each class.
    class_names: names of these folders, in the order of their labels.
    first_label: label of the first class.

  Returns:
    Items, sorted by class and name.

  Raises:
    slim.errors.DataError: a class folder is missing or empty, a folder is not
      a class, or a class folder contains a folder.
  """
  found = set(class_folders(folder))
  missing = [name for name in class_names if name not in found]
  if missing:
    raise errors.DataError(
      f'{folder}: expected a folder for each class; received none for '
      f'{", ".join(map(repr, missing))}. Add it, or remove the name from '
      '--labels_file.'
    )
  unknown = sorted(found.difference(class_names))
  if unknown:
    raise errors.DataError(
      f'{folder}: expected folders of classes only; received '
      f'{", ".join(map(repr, unknown))}, which the file of labels does not '
      'name. Add the name to --labels_file, or move the folder elsewhere.'
    )
  return [
    labeled_images.Item(member, label)
    for label, name in enumerate(class_names, first_label)
    for member in _files(folder / name)
  ]


def files(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the visible files in a folder, sorted.

  Raises:
    slim.errors.DataError: one is a broken link, a folder or a special file.
  """
  found = sorted(_visible(folder))
  for path in found:
    _regular_status(path)
  return found


def _visible(folder: pathlib.Path) -> abc.Iterator[pathlib.Path]:
  return (path for path in folder.iterdir() if not path.name.startswith('.'))


def _files(folder: pathlib.Path) -> list[archives.Member]:
  paths = sorted(_visible(folder))
  if not paths:
    raise errors.DataError(
      f'{folder}: expected images; received an empty folder. Add images, or '
      'remove the folder, and its name from --labels_file.'
    )
  return [_member(path) for path in paths]


def _member(path: pathlib.Path) -> archives.Member:
  status = _regular_status(path)
  name = f'{path.parent.name}/{path.name}'
  return archives.Member(name, str(path), 0, status.st_size)


def _regular_status(path: pathlib.Path) -> os.stat_result:
  """Returns the status of a regular file; refuses everything else."""
  try:
    status = path.stat()
  except OSError as error:
    raise _not_a_file(path, received=f'"{error}"') from error
  if not stat.S_ISREG(status.st_mode):
    raise _not_a_file(path, received='a folder or a special file')
  return status
