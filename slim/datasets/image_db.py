"""Image databases of Caffe2 as a source: <data_dir>/<split> is a database."""

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

  It is read by key number and not by a cursor, so that examples come in any
  order.

  Args:
    data_dir: the folder in which the databases are, perhaps with labels.txt.
    split: name of the database, an LMDB or a LevelDB.
    num_classes: labels are below it; None: those of labels.txt.

  Returns:
    The source; at least one example. A process that holds it has the database
    open.

  Raises:
    slim.errors.DataError: there is no database, or it cannot be read, or nobody
      knows the number of classes.
  """
  database = databases.open_database(pathlib.Path(data_dir) / split)
  names = labels.read(data_dir, first_label=0)
  if not num_classes:
    if not names:
      raise errors.DataError(
        f'{os.fspath(data_dir)}: expected {labels.FILE_NAME} with the classes '
        'beside the database; received none. Write one, one name a line, or '
        'say num_classes.'
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
  )
