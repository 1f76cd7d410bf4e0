"""Streams of serialized examples whose order is a function of the position.

No iterator has to be saved: to go on where a run stopped, start a new stream
at the position it had reached.
"""

from collections import abc

import tensorflow as tf

from slim.datasets import records

# Stands for "the order of the files" where otherwise a window's number stands.
_FILES = -1


def in_file_order(files: abc.Sequence[records.RecordFile]) -> tf.data.Dataset:
  """Streams every record once, file after file.

  Args:
    files: at least one.

  Returns:
    Elements (position int64 [], serialized string []); positions from 0.
  """
  paths = tf.constant([file.path for file in files])
  return tf.data.TFRecordDataset(paths).enumerate()


def shuffled(
  files: abc.Sequence[records.RecordFile],
  *,
  seed: int,
  start: int,
  window: int,
) -> tf.data.Dataset:
  """Streams the records for ever, each epoch in another order.

  Position p is record p % n of epoch p // n, n being the number of records. For
  given files and window, an epoch's order depends on (seed, epoch) alone: the
  files are permuted, their records strung together and cut into windows, and
  each window is permuted. A window that holds all records gives every order; a
  smaller one mixes records only within it, so files should not be sorted by
  label.

  Args:
    files: at least one.
    seed: any int64.
    start: position of the first element, >= 0. Skipping to it reads only the
      lengths of the records before.
    window: records shuffled together, >= 1. Up to two windows are in memory.

  Returns:
    Elements (position int64 [], serialized string []), without end.
  """
  total = sum(file.count for file in files)
  first_epoch, offset = divmod(start, total)
  first_window, within = divmod(offset, window)
  paths = tf.constant([file.path for file in files])

  def epoch_stream(epoch):
    is_first = tf.cast(tf.equal(epoch, first_epoch), tf.int64)
    file_order = _permutation(len(files), seed, epoch, _FILES)
    stream = tf.data.TFRecordDataset(tf.gather(paths, file_order))
    stream = stream.skip(is_first * first_window * window).batch(window)
    stream = stream.enumerate(is_first * first_window).prefetch(1)

    def permute(number, serialized):
      order = _permutation(tf.size(serialized), seed, epoch, number)
      return tf.data.Dataset.from_tensor_slices(tf.gather(serialized, order))

    return stream.flat_map(permute).skip(is_first * within)

  epochs = tf.data.Dataset.counter(first_epoch, dtype=tf.int64)
  return epochs.flat_map(epoch_stream).enumerate(start)


def _permutation(
  size: tf.Tensor | int, seed: int, epoch: tf.Tensor, number: tf.Tensor | int
) -> tf.Tensor:
  """A random permutation of range(size), int32 [size].

  It depends on nothing but the arguments: neither on the device nor on what
  was drawn before.
  """
  key = tf.random.experimental.stateless_fold_in(
    tf.stack([tf.cast(seed, tf.int64), tf.cast(epoch, tf.int64)]), number
  )
  draws = tf.random.stateless_uniform(
    [size], key, minval=None, maxval=None, dtype=tf.int64, alg='philox'
  )
  return tf.argsort(draws, stable=True)
