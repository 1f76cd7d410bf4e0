"""Reads Caffe2 image databases: <data_dir>/<split> is a database."""

import functools
import os
import pathlib

from slim import errors
from slim.datasets import labels
from slim.datasets import sources
from slim.datasets.files import databases
from slim.datasets.files import tensor_protos


def open_split(
  data_dir: str | os.PathLike[str], split: str, num_classes: int | None
) -> sources.ExampleSource:
  """Opens a database of images.

  The source reads by key number, not with a cursor, so that examples can be
  read in any order.

  Args:
    data_dir: the folder of the databases, and optionally of labels.txt.
    split: name of the database, an LMDB or a LevelDB.
    num_classes: number of classes; None takes it from labels.txt.

  Returns:
    The source, with at least one example. It holds the database open.

  Raises:
    slim.errors.DataError: the database is missing or cannot be read, or the
      number of classes is unknown.
  """
  database = databases.open_database(pathlib.Path(data_dir) / split)
  names = labels.read(data_dir, first_label=0)
  if not num_classes:
    if not names:
      raise errors.DataError(
        f'{os.fspath(data_dir)}: expected {labels.FILE_NAME} with the classes '
        'beside the database; received none. Write one, one name per line, or '
        'pass num_classes.'
      )
    num_classes = max(names) + 1

  def read(number: int) -> tensor_protos.Image:
    try:
      return tensor_protos.decode(database.read(number))
    except errors.DataError as error:
      raise errors.DataError(
        f'{database.path}, key {number}: {error}'
      ) from error

  return sources.ExampleSource(
    database.count,
    num_classes,
    names,
    functools.partial(sources.from_python, read),
    database.digest(),
  )
