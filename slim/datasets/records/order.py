"""Streams of serialized examples whose order is a function of the position.

No iterator has to be saved: to go on where a run stopped, start a new stream
at the position it had reached.
"""

import dataclasses
from collections import abc
from typing import NamedTuple

import tensorflow as tf

from slim.datasets.records import records

# Stands for "the order of the files" where otherwise a window's number stands.
_FILES = -1


def in_file_order(files: abc.Sequence[records.RecordFile]) -> tf.data.Dataset:
  """Streams every record once, file after file.

  Args:
    files: at least one.

  Returns:
    Elements (position int64 [], serialized string []); positions from 0.
  """
  return _read(*_columns(files)).enumerate()


class Reference(NamedTuple):
  """Where in memory a serialized example is.

  Photographs are large: each copy of their strings costs some percent of the
  time of decoding them, and so they are passed on by reference.

  Attributes:
    window: variant [], the strings [w] of a window, one for all its references.
    row: int32 [], in [0, w).
  """

  window: tf.Tensor
  row: tf.Tensor

  def serialized(self) -> tf.Tensor:
    """The example, a copy, string []."""
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
  """Streams the records for ever, each epoch in another order.

  Position p is record p % n of epoch p // n, n being the number of records. For
  given files and window, an epoch's order depends on (seed, epoch) alone: the
  files are permuted, their records strung together and cut into windows, and
  each window is permuted. A window that holds all records gives every order; a
  smaller one mixes records only within it, so files should not be sorted by
  label.

  Files are read from front to back, as disks and networks like it, and no index
  of where records begin is needed; what is in memory is bounded by the window
  and not by the files.

  Args:
    files: at least one record in all.
    seed: any int64.
    start: position of the first element, >= 0. Files before it are not opened;
      in its own file only the lengths of the records before it are read.
    window: records shuffled together, >= 1. In memory are two windows, the next
      one being read while one is delivered, and a permuted copy.

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
  """Streams the same as `shuffled`, without copying; for large records.

  Args:
    files: as there.
    seed: as there.
    start: as there.
    window: as there, but there is no permuted copy in memory.

  Returns:
    Elements (position int64 [], Reference), without end.
  """

  def permuted(serialized: tf.Tensor, places: tf.Tensor) -> Reference:
    # Within a variant, because tf.data counts the bytes of all strings of a
    # tensor whenever it hands it on.
    wrapped = tf.raw_ops.OptionalFromValue(components=[serialized])
    return Reference(tf.fill(tf.shape(places), wrapped), places)

  return _shuffled(files, permuted, seed=seed, start=start, window=window)


def shuffled_indices(count: int, *, seed: int, start: int) -> tf.data.Dataset:
  """Streams the numbers of examples for ever, each epoch in another order.

  For sources that are read by number. Position p is number p % count of epoch
  p // count, and an epoch's order, any of all, depends on (seed, epoch) alone.

  Args:
    count: how many examples there are, >= 1. An epoch's order is in memory:
      16 bytes an example.
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


def part_of(count: int, worker: int, num_workers: int) -> tuple[int, int]:
  """Deals examples to workers: consecutive, whole, and without overlap.

  Args:
    count: examples in all, >= num_workers.
    worker: in [0, num_workers).
    num_workers: >= 1.

  Returns:
    (first example, first of the next worker). Shares differ by at most one.

  Raises:
    ValueError: a number is out of its range.
  """
  if not 0 <= worker < num_workers:
    raise ValueError(
      f'worker: expected a number in [0, {num_workers}); received {worker}.'
    )
  if count < num_workers:
    raise ValueError(
      f'num_workers: expected at most {count}, one for each example; received '
      f'{num_workers}.'
    )
  return (
    worker * count // num_workers,
    (worker + 1) * count // num_workers,
  )


def part_of_files(
  files: abc.Sequence[records.RecordFile], worker: int, num_workers: int
) -> tuple[records.RecordFile, ...]:
  """A worker's records: whole files, but perhaps for the first and the last.

  Args:
    files: in the same order for every worker.
    worker: in [0, num_workers).
    num_workers: from 1 to the number of records.

  Returns:
    At least one; `first` and `count` say which records of a file.

  Raises:
    ValueError: a number is out of its range.
  """
  begin, end = part_of(sum(f.count for f in files), worker, num_workers)
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


def _columns(
  files: abc.Sequence[records.RecordFile],
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """(paths string [n], first records int64 [n], counts int64 [n])."""
  return (
    tf.constant([file.path for file in files]),
    tf.constant([file.first for file in files], tf.int64),
    tf.constant([file.count for file in files], tf.int64),
  )


def _without_first(
  skipped: tf.Tensor, paths: tf.Tensor, firsts: tf.Tensor, counts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """The columns without the first `skipped` records of all."""
  before = tf.cumsum(counts, exclusive=True)
  dropped = tf.clip_by_value(skipped - before, 0, counts)
  left = dropped < counts
  return (
    tf.boolean_mask(paths, left),
    tf.boolean_mask(firsts + dropped, left),
    tf.boolean_mask(counts - dropped, left),
  )


def _read(
  paths: tf.Tensor, firsts: tf.Tensor, counts: tf.Tensor
) -> tf.data.Dataset:
  """Streams serialized examples, file after file."""

  def of_file(
    path: tf.Tensor, first: tf.Tensor, count: tf.Tensor
  ) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(path).skip(first).take(count)

  columns = tf.data.Dataset.from_tensor_slices((paths, firsts, counts))
  return columns.flat_map(of_file)


def _shuffled(
  files: abc.Sequence[records.RecordFile],
  permuted: abc.Callable[[tf.Tensor, tf.Tensor], tf.Tensor | Reference],
  *,
  seed: int,
  start: int,
  window: int,
) -> tf.data.Dataset:
  """(position, element); `permuted` makes the elements of a window.

  Args:
    files: see `shuffled`.
    permuted: takes strings [w] and a permutation, int32 [w]; returns elements
      [w] in that order.
    seed: see `shuffled`.
    start: see `shuffled`.
    window: see `shuffled`.

  Returns:
    Elements (position int64 [], what `permuted` made), without end.
  """
  total = sum(file.count for file in files)
  first_epoch, offset = divmod(start, total)
  first_window, within = divmod(offset, window)
  paths, firsts, counts = _columns(files)

  def windows_of(epoch: tf.Tensor) -> tf.data.Dataset:
    file_order = _permutation(len(files), seed, epoch, _FILES)
    columns = (tf.gather(part, file_order) for part in (paths, firsts, counts))
    number = tf.where(tf.equal(epoch, first_epoch), first_window, 0)
    number = tf.cast(number, tf.int64)
    stream = _read(*_without_first(number * window, *columns)).batch(window)
    return stream.enumerate(number).map(lambda *numbered: (epoch, *numbered))

  def permute(
    epoch: tf.Tensor, number: tf.Tensor, serialized: tf.Tensor
  ) -> tf.data.Dataset:
    places = _permutation(tf.size(serialized), seed, epoch, number)
    return tf.data.Dataset.from_tensor_slices(permuted(serialized, places))

  epochs = tf.data.Dataset.counter(first_epoch, dtype=tf.int64)
  # Across epochs, so that none begins with waiting for its first window.
  windows = epochs.flat_map(windows_of).prefetch(1)
  return windows.flat_map(permute).skip(within).enumerate(start)


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
