"""Random bits as a pure function of a key and an element's index.

This module keeps no state. A key represents (seed, step, worker, variable). The
bits of an element depend only on the key and the index of the element, so that
eager code, graphs, XLA and native kernels draw the same bits on any device.

Keys are derived with Threefry-2x32, the counter-based generator of Salmon et
al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). It is strong and
runs once per variable. Elements are hashed by two rounds of multiply and
xor-shift, with the multipliers and shifts of the `lowbias32` function that C.
Wellons found by search (https://nullprogram.com/blog/2018/07/31/, public
domain). This hash is fast and runs once per element.

Two rounds leave small correlations. The bits of one element are uniform, but
the draws of two elements are correlated over the keys, by up to 0.002 at some
distances (1024, 3072 and 8192 among the powers of 2 and their sums). For
example, of two elements that are nonzero with probability 0.03 each, both are
nonzero 4 % too rarely. This changes no mean, and it changes the variance of a
sum by a few thousandths. The hash is not replaced, because recorded results
depend on these bits.
"""

from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from terngrad.codec.stages import tracing

_THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_THREEFRY_PARITY = 0x1BD11BDA

# int64 [], or a Python integer.
Integer: TypeAlias = tf.Tensor | int
_Pair = tuple[tf.Tensor, tf.Tensor]

# The worker index of keys that are common to all workers; no worker has it.
_ALL_WORKERS = -(2**31)
# Folded into a bucket's key for the order of the workers' strata.
_STRATA_ORDER = 1
# Folded into a bucket's key for the draws of requantization.
_REQUANTIZING = 2


def seed_key(seed: Integer) -> tf.Tensor:
  """Returns the root key of a run, uint32 [2].

  Args:
    seed: int64 [] or Python integer.
  """
  return tf.bitcast(tf.cast(seed, tf.int64), tf.uint32)


def fold_in(key: tf.Tensor, data: tf.Tensor) -> tf.Tensor:
  """Derives a key from a key and a number; other numbers give unrelated keys.

  Args:
    key: uint32 [..., 2].
    data: int64 or int32, of a shape that broadcasts with `key`'s batch shape;
      any value.

  Returns:
    uint32 [..., 2].
  """
  data = tf.cast(data, tf.int64)
  # Run eagerly, the hundred small operations take milliseconds, and traced they
  # take a tenth of a second, so they are traced once.
  return (_fold_eagerly if tf.executing_eagerly() else _fold_traced)(key, data)


def worker_key(seed: Integer, step: Integer, worker: Integer) -> tf.Tensor:
  """Returns the key of one worker's codes in one step, uint32 [2].

  Args:
    seed: int64 [] or integer, of the run.
    step: int64 [], steps taken before this one.
    worker: int32 or int64 [].
  """
  return fold_in(fold_in(seed_key(seed), step), worker)


# The same as one program.
compiled_worker_key = tracing.on_host(tracing.compiled(worker_key))


def common_key(seed: Integer, step: Integer, stream: Integer) -> tf.Tensor:
  """Returns a bucket's key that is common to all workers, uint32 [2].

  Args:
    seed: int64 [] or integer, of the run.
    step: int64 [], steps taken before this one.
    stream: index of the bucket.
  """
  return fold_in(worker_key(seed, step, _ALL_WORKERS), stream)


def bucket_keys(
  streams: Sequence[tuple[Integer, int]],
  seed: Integer,
  step: Integer,
  worker: Integer,
) -> tf.Tensor:
  """Returns the keys of one worker's buckets.

  Args:
    streams: for each bucket (the number folded into its key, the number of
      strata of its draws or 0).
    seed: int64 [] or integer, of the run.
    step: int64 [], steps taken before this one.
    worker: int32 or int64 [].

  Returns:
    uint32 [buckets, 3]. The first two numbers are specific to the worker or,
    with strata, equal for all workers. The third is the worker's stratum, or 0.
  """
  parent = worker_key(seed, step, worker)
  if any(strata for _, strata in streams):
    with_strata = tf.constant([[strata > 0] for _, strata in streams])
    common = worker_key(seed, step, _ALL_WORKERS)
    parent = tf.where(with_strata, common, parent)
  # Of all buckets at once: XLA takes 0.1 s to compile one `fold_in`.
  keys = fold_in(parent, tf.stack([tf.cast(s, tf.int64) for s, _ in streams]))
  starts = [
    stratum(fold_in(keys[index], _STRATA_ORDER), worker, strata)
    if strata
    else tf.constant(0, tf.uint32)
    for index, (_, strata) in enumerate(streams)
  ]
  return tf.concat([keys, tf.stack(starts)[:, tf.newaxis]], axis=1)


def bucket_key(keys: tf.Tensor, index: int) -> tf.Tensor:
  """Returns the key of a bucket, uint32 [3], from those of `bucket_keys`."""
  with tracing.beside(keys):
    return keys[index]


def fold_in_keeping_stratum(key: tf.Tensor, data: Integer) -> tf.Tensor:
  """Applies `fold_in` to a bucket's key, uint32 [2] or [3].

  The third number, the stratum of the worker, stays.
  """
  with tracing.beside(key):
    return tf.concat([fold_in(key[:2], data), key[2:]], axis=0)


def requantizing_key(key: tf.Tensor) -> tf.Tensor:
  """Derives the key of requantization from a bucket's, uint32 [2] or [3]."""
  return fold_in_keeping_stratum(key, _REQUANTIZING)


def advance_key(key: tf.Tensor, start: Integer) -> tf.Tensor:
  """Advances a bucket's key, so that its index 0 is the element `start`.

  Args:
    key: uint32 [2] or [3], of the whole bucket.
    start: int or int64 [], index in the whole bucket.

  Returns:
    The same shape. An element draws the same bits as in the whole bucket.
  """
  if not tf.is_tensor(start) and start == 0:
    return key
  # `element_bits` adds an element's index to the first number.
  with tracing.beside(key):
    if tf.is_tensor(start):
      moved = tf.cast(start % 2**32, tf.uint32)
      return tf.concat([key[:1] + moved, key[1:]], axis=0)
    return key + tf.constant(
      [start % 2**32] + [0] * (key.shape[0] - 1), tf.uint32
    )


def element_bits(key: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
  """Returns 32 random bits for each element.

  Args:
    key: uint32 [2]; further numbers are ignored.
    positions: uint32, any shape: indices of elements.

  Returns:
    uint32, shape of `positions`.
  """
  bits = _xor_shift(positions + key[0], 16) * _uint32(0x7FEB352D)
  bits = _xor_shift(bits + key[1], 15) * _uint32(0x846CA68B)
  return _xor_shift(bits, 16)


def range_bits(key: tf.Tensor, size: int, start: int = 0) -> tf.Tensor:
  """Returns the bits of `size` elements from `start` on, uint32 [size]."""
  # The range is int64 if it ends above 2**31.
  return element_bits(key, tf.cast(tf.range(start, start + size), tf.uint32))


def stratum(key: tf.Tensor, worker: tf.Tensor, num_workers: int) -> tf.Tensor:
  """Returns the start of a worker's share of [0, 2**32).

  The shares have a random order of the workers.

  Args:
    key: uint32 [2], the same for all workers.
    worker: int32 or int64 [], in [0, num_workers).
    num_workers: integer >= 1.

  Returns:
    uint32 []: rank * 2**32 / num_workers, rounded down. The ranks of the
    workers are a permutation of 0 to num_workers - 1.
  """
  order = tf.cast(range_bits(key, num_workers), tf.int64)
  index = tf.range(num_workers, dtype=tf.int64)
  worker = tf.cast(worker, tf.int64)
  value = tf.gather(order, worker)
  before = (order < value) | ((order == value) & (index < worker))
  rank = tf.math.count_nonzero(before)
  return tf.cast(rank * 2**32 // num_workers, tf.uint32)


def _fold(key: tf.Tensor, data: tf.Tensor) -> tf.Tensor:
  """Returns `fold_in` of int64 data."""
  words = tf.bitcast(data, tf.uint32)
  first, second = _threefry(
    (key[..., 0], key[..., 1]), (words[..., 0], words[..., 1])
  )
  return tf.stack([first, second], axis=-1)


# Graphs need static shapes, and eager code calls with many.
_fold_traced = tracing.function(_fold)
_fold_eagerly = tracing.function(_fold, reduce_retracing=True)


def _threefry(key: _Pair, counter: _Pair) -> _Pair:
  """Applies Threefry-2x32 with 20 rounds to pairs of uint32 tensors."""
  parity = tf.bitwise.bitwise_xor(
    tf.bitwise.bitwise_xor(key[0], key[1]), _uint32(_THREEFRY_PARITY)
  )
  schedule = (*key, parity)
  x0, x1 = counter[0] + key[0], counter[1] + key[1]
  for block in range(5):
    for rotation in _THREEFRY_ROTATIONS[block % 2]:
      x0 = x0 + x1
      x1 = tf.bitwise.bitwise_xor(_rotate_left(x1, rotation), x0)
    x0 = x0 + schedule[(block + 1) % 3]
    x1 = x1 + schedule[(block + 2) % 3] + _uint32(block + 1)
  return x0, x1


def _xor_shift(bits: tf.Tensor, distance: int) -> tf.Tensor:
  return tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, distance))


def _rotate_left(bits: tf.Tensor, distance: int) -> tf.Tensor:
  return tf.bitwise.bitwise_or(
    tf.bitwise.left_shift(bits, distance),
    tf.bitwise.right_shift(bits, 32 - distance),
  )


def _uint32(value: int) -> tf.Tensor:
  return tf.constant(value, tf.uint32)
