"""Streams of examples whose order is a function of the position.

No iterator state has to be saved: to continue a run, start a new stream at
the position that the run reached.
"""

import dataclasses
from collections import abc
from typing import NamedTuple

import tensorflow as tf

from slim import errors
from slim.datasets.records import records

# Replaces the window number in the seed of the file permutation.
_FILES = -1


def read_sequentially(
  files: abc.Sequence[records.RecordFile],
) -> tf.data.Dataset:
  """Streams every record once, file after file.

  Args:
    files: at least one.

  Returns:
    Elements (position int64 [], serialized string []); positions start at 0.
  """
  return _read(*_columns(files)).enumerate()


class Reference(NamedTuple):
  """The location of a serialized example in memory.

  Photographs are large: each copy of their strings costs some percent of the
  time of decoding them. A reference avoids the copies.

  Attributes:
    window: variant [], holds the strings [w] of a window; all references of
      the window share it.
    row: int32 [], in [0, w).
  """

  window: tf.Tensor
  row: tf.Tensor

  def serialized(self) -> tf.Tensor:
    """Returns a copy of the serialized example, string []."""
    (window,) = tf.raw_ops.OptionalGetValue(
      optional=self.window, output_types=[tf.string], output_shapes=[[None]]
    )
    return tf.gather(window, self.row)


def shuffled(
  files: abc.Sequence[records.RecordFile],
  *,
  seed: int,
  start: int,
  window: int,
) -> tf.data.Dataset:
  """Streams the records without end, each epoch in a different order.

  Position p is record p % n of epoch p // n, where n is the number of records.
  For given files and window, an epoch's order depends only on (seed, epoch):
  the files are permuted, their records are concatenated and cut into windows,
  and each window is permuted. A window that holds all records can produce
  every order. A smaller one mixes records only within the window, so files
  should not be sorted by label.

  Each file is read sequentially, which suits disks and networks, and needs no
  index of record offsets. The window, not the file size, bounds the memory.

  Args:
    files: at least one record in all.
    seed: any int64.
    start: position of the first element, >= 0. Earlier files are not opened;
      in the file of this position, only the lengths of earlier records are
      read.
    window: number of records shuffled together, >= 1. Memory holds two
      windows (one is read while the other is delivered) and a permuted copy.

  Returns:
    Elements (position int64 [], serialized string []), without end.
  """
  return _shuffled(files, tf.gather, seed=seed, start=start, window=window)


def shuffled_references(
  files: abc.Sequence[records.RecordFile],
  *,
  seed: int,
  start: int,
  window: int,
) -> tf.data.Dataset:
  """Streams what `shuffled` streams, without copies; for large records.

  Args:
    files: at least one record in all.
    seed: any int64.
    start: position of the first element, >= 0.
    window: number of records shuffled together, >= 1. Memory holds two
      windows and no permuted copy.

  Returns:
    Elements (position int64 [], Reference), without end.
  """

  def permuted(serialized: tf.Tensor, indices: tf.Tensor) -> Reference:
    # A variant, because tf.data counts the bytes of all strings of a tensor
    # whenever it passes the tensor on.
    wrapped = tf.raw_ops.OptionalFromValue(components=[serialized])
    return Reference(tf.fill(tf.shape(indices), wrapped), indices)

  return _shuffled(files, permuted, seed=seed, start=start, window=window)


def shuffled_indices(count: int, *, seed: int, start: int) -> tf.data.Dataset:
  """Streams example indices without end, each epoch in a different order.

  For sources that are read by index. Position p is element p % count of epoch
  p // count. An epoch's order depends only on (seed, epoch), and every order
  is possible.

  Args:
    count: number of examples, >= 1. An epoch's order takes 16 bytes of memory
      per example.
    seed: any int64.
    start: position of the first element, >= 0.

  Returns:
    Elements (position int64 [], index int64 [] in [0, count)), without end.
  """
  first_epoch, offset = divmod(start, count)

  def epoch_stream(epoch: tf.Tensor) -> tf.data.Dataset:
    order = tf.cast(_permutation(count, seed, epoch, _FILES), tf.int64)
    skipped = tf.where(tf.equal(epoch, first_epoch), offset, 0)
    return tf.data.Dataset.from_tensor_slices(order[skipped:])

  epochs = tf.data.Dataset.counter(first_epoch, dtype=tf.int64)
  return epochs.flat_map(epoch_stream).enumerate(start)


def partition_indices(count: int, worker: int, num_workers: int) -> range:
  """Returns every `num_workers`-th index, from `worker` on.

  Sources that are read by index are often sorted by class, so consecutive
  ranges would give the workers different classes.

  Args:
    count: number of examples, >= num_workers.
    worker: in [0, num_workers).
    num_workers: >= 1.

  Returns:
    The indices of this worker. Their numbers differ by at most one; workers
    share no index and cover all.

  Raises:
    slim.errors.DataError: a number is out of its range.
  """
  _check_worker(count, worker, num_workers)
  return range(worker, count, num_workers)


def partition(count: int, worker: int, num_workers: int) -> tuple[int, int]:
  """Partitions examples among workers into consecutive ranges.

  Args:
    count: number of examples, >= num_workers.
    worker: in [0, num_workers).
    num_workers: >= 1.

  Returns:
    (first example of this worker, first of the next). Sizes of the ranges
    differ by at most one; ranges do not overlap and cover all examples.

  Raises:
    slim.errors.DataError: a number is out of its range.
  """
  _check_worker(count, worker, num_workers)
  return (
    worker * count // num_workers,
    (worker + 1) * count // num_workers,
  )


def partition_files(
  files: abc.Sequence[records.RecordFile], worker: int, num_workers: int
) -> tuple[records.RecordFile, ...]:
  """Returns a worker's records: whole files, except perhaps first and last.

  Args:
    files: in the same order on every worker.
    worker: in [0, num_workers).
    num_workers: from 1 to the number of records.

  Returns:
    At least one; `first` and `count` select the records of a file.

  Raises:
    slim.errors.DataError: a number is out of its range.
  """
  begin, end = partition(sum(f.count for f in files), worker, num_workers)
  parts, before = [], 0
  for file in files:
    low = max(begin - before, 0)
    high = min(end - before, file.count)
    if low < high:
      parts.append(
        dataclasses.replace(file, first=file.first + low, count=high - low)
      )
    before += file.count
  return tuple(parts)


def _check_worker(count: int, worker: int, num_workers: int) -> None:
  if not 0 <= worker < num_workers:
    raise errors.DataError(
      f'worker: expected a number in [0, {num_workers}); received {worker}.'
    )
  if count < num_workers:
    raise errors.DataError(
      f'num_workers: expected at most {count}, because every worker needs an '
      f'example; received {num_workers}. Use fewer workers.'
    )


def _columns(
  files: abc.Sequence[records.RecordFile],
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Returns (paths string [n], first records int64 [n], counts int64 [n])."""
  return (
    tf.constant([file.path for file in files]),
    tf.constant([file.first for file in files], tf.int64),
    tf.constant([file.count for file in files], tf.int64),
  )


def _skip_first(
  skipped: tf.Tensor, paths: tf.Tensor, firsts: tf.Tensor, counts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Returns the columns without the first `skipped` records of all files."""
  before = tf.cumsum(counts, exclusive=True)
  dropped = tf.clip_by_value(skipped - before, 0, counts)
  left = tf.reshape(tf.where(dropped < counts), [-1])
  columns = paths, firsts + dropped, counts - dropped
  paths, firsts, counts = (tf.gather(column, left) for column in columns)
  return paths, firsts, counts


def _read(
  paths: tf.Tensor, firsts: tf.Tensor, counts: tf.Tensor
) -> tf.data.Dataset:
  """Streams serialized examples, file after file."""

  def read_file(
    path: tf.Tensor, first: tf.Tensor, count: tf.Tensor
  ) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(path).skip(first).take(count)

  columns = tf.data.Dataset.from_tensor_slices((paths, firsts, counts))
  return columns.flat_map(read_file)


def _shuffled(
  files: abc.Sequence[records.RecordFile],
  permuted: abc.Callable[[tf.Tensor, tf.Tensor], tf.Tensor | Reference],
  *,
  seed: int,
  start: int,
  window: int,
) -> tf.data.Dataset:
  """Streams (position, element); `permuted` makes the elements of a window.

  `permuted` takes strings [w] and a permutation, int32 [w]; it returns elements
  [w] in that order. The other arguments are those of `shuffled`.

  Returns:
    Elements (position int64 [], result of `permuted`), without end.
  """
  total = sum(file.count for file in files)
  first_epoch, offset = divmod(start, total)
  first_window, skipped_rows = divmod(offset, window)
  paths, firsts, counts = _columns(files)

  def read_windows(epoch: tf.Tensor) -> tf.data.Dataset:
    file_order = _permutation(len(files), seed, epoch, _FILES)
    columns = (tf.gather(part, file_order) for part in (paths, firsts, counts))
    number = tf.where(tf.equal(epoch, first_epoch), first_window, 0)
    number = tf.cast(number, tf.int64)
    stream = _read(*_skip_first(number * window, *columns)).batch(window)
    return stream.enumerate(number).map(lambda *numbered: (epoch, *numbered))

  def permute(
    epoch: tf.Tensor, number: tf.Tensor, serialized: tf.Tensor
  ) -> tf.data.Dataset:
    indices = _permutation(tf.size(serialized), seed, epoch, number)
    return tf.data.Dataset.from_tensor_slices(permuted(serialized, indices))

  epochs = tf.data.Dataset.counter(first_epoch, dtype=tf.int64)
  # Prefetch across epochs, so that no epoch waits for its first window.
  windows = epochs.flat_map(read_windows).prefetch(1)
  return windows.flat_map(permute).skip(skipped_rows).enumerate(start)


def _permutation(
  size: tf.Tensor | int, seed: int, epoch: tf.Tensor, number: tf.Tensor | int
) -> tf.Tensor:
  """Returns a random permutation of range(size), int32 [size].

  It depends only on the arguments, not on the device or on earlier draws.
  """
  key = tf.random.experimental.stateless_fold_in(
    tf.stack([tf.cast(seed, tf.int64), tf.cast(epoch, tf.int64)]), number
  )
  # Philox, because stages of tf.data run on the CPU and without XLA. With
  # `alg='philox'` twenty operations would replace one in each stage.
  draws = tf.random.stateless_uniform(
    [size], key, minval=None, maxval=None, dtype=tf.int64
  )
  return tf.argsort(draws, stable=True)
