"""Image databases of Caffe2 as a source: <data_dir>/<split> is a database."""

import os
import pathlib

import numpy as np
import tensorflow as tf

from slim import errors
from slim.datasets import examples
from slim.datasets import labels
from slim.datasets import sources
from slim.datasets.files import databases
from slim.datasets.files import tensor_protos


def open_split(
  data_dir: str | os.PathLike, split: str, num_classes: int | None
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
  if num_classes is None and not names:
    raise errors.DataError(
      f'{os.fspath(data_dir)}: expected {labels.FILE_NAME} with the classes '
      'beside the database; received none. Write one, one name a line, or say '
      'num_classes.'
    )

  return _Source(database, num_classes or max(names) + 1, names)


class _Source(sources.ExampleSource):
  """The records of a database, by their numbers."""

  def __init__(
    self,
    database: databases.Database,
    num_classes: int,
    labels: dict[int, str] | None,
  ) -> None:
    super().__init__(database.count, num_classes, labels)
    self._database = database

  def read(self, index: tf.Tensor) -> examples.Stored:
    """See `sources.ExampleSource.read`."""
    encoded, image_format, size, label = tf.numpy_function(
      self._columns,
      [index],
      [tf.string, tf.string, tf.int32, tf.int64],
      # tf.data may then run it ahead and in any order.
      stateful=False,
    )
    return examples.Stored(
      encoded=tf.ensure_shape(encoded, []),
      image_format=tf.ensure_shape(image_format, []),
      size=tf.ensure_shape(size, [2]),
      boxes=tf.zeros([0, 4]),
      label=tf.ensure_shape(label, []),
    )

  def _columns(
    self, number: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(encoded, format, size int32 [2], label int64) of a record."""
    database, number = self._database, int(number)
    try:
      image = tensor_protos.decode(database.read(number))
    except errors.DataError as error:
      raise errors.DataError(
        f'{database.path}, key {number}: {error}'
      ) from error
    return (
      # As objects: NumPy would cut zero bytes off the end of a string.
      np.array(image.encoded, object),
      np.array(image.image_format, object),
      np.array(image.size, np.int32),
      np.array(image.label, np.int64),
    )
