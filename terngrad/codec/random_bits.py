"""Random bits as a function of position: (key, element) to 32 bits.

Nothing here holds state. A key stands for (seed, step, worker, variable), and
the bits of an element depend on the key and the element's index alone, so that
eager code, graphs, XLA and native kernels on any device draw the same bits.

Keys are derived with Threefry-2x32, the counter-based generator of Salmon et
al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); it is strong and
runs once a variable. Elements are hashed by two rounds of multiply and
xor-shift, with the multipliers and shifts of the `lowbias32` function that C.
Wellons found by search (https://nullprogram.com/blog/2018/07/31/, public
domain); it is fast and runs once an element.
"""

import tensorflow as tf

_THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_THREEFRY_PARITY = 0x1BD11BDA


def seed_key(seed):
  """The root key of a run.

  Args:
    seed: int64 [] or Python integer.

  Returns:
    uint32 [2].
  """
  return tf.bitcast(tf.cast(seed, tf.int64), tf.uint32)


def fold_in(key, data):
  """A new key from a key and a number: other numbers, unrelated keys.

  Args:
    key: uint32 [..., 2].
    data: int64 or int32, of a shape that broadcasts with `key`'s batch shape;
      any value.

  Returns:
    uint32 [..., 2].
  """
  words = tf.bitcast(tf.cast(data, tf.int64), tf.uint32)
  first, second = _threefry(
    (key[..., 0], key[..., 1]), (words[..., 0], words[..., 1])
  )
  return tf.stack([first, second], axis=-1)


def element_bits(key, positions):
  """32 random bits for each element.

  Args:
    key: uint32 [2].
    positions: uint32, any shape: indices of elements.

  Returns:
    uint32, shape of `positions`.
  """
  bits = positions + key[0]
  bits = _xor_shift(bits, 16) * _uint32(0x7FEB352D)
  bits = bits + key[1]
  bits = _xor_shift(bits, 15) * _uint32(0x846CA68B)
  return _xor_shift(bits, 16)


def stratum(key, worker, num_workers):
  """A worker's share of [0, 2**32), in a random order of the workers.

  Args:
    key: uint32 [2], the same for all workers.
    worker: int32 or int64 [], in [0, num_workers).
    num_workers: integer >= 1.

  Returns:
    uint32 [], the start of the share: a permutation of 0, 1 / num_workers, ...
    times 2**32, rounded down.
  """
  order = tf.cast(element_bits(key, _counting(num_workers)), tf.int64)
  index = tf.range(num_workers, dtype=tf.int64)
  worker = tf.cast(worker, tf.int64)
  mine = tf.gather(order, worker)
  before = (order < mine) | ((order == mine) & (index < worker))
  rank = tf.reduce_sum(tf.cast(before, tf.int64))
  return tf.cast(rank * 2**32 // num_workers, tf.uint32)


def _counting(count):
  return tf.bitcast(tf.range(count), tf.uint32)


def _threefry(key, counter):
  """Threefry-2x32 with 20 rounds; pairs of uint32 tensors in and out."""
  parity = tf.bitwise.bitwise_xor(
    tf.bitwise.bitwise_xor(key[0], key[1]), _uint32(_THREEFRY_PARITY)
  )
  schedule = (key[0], key[1], parity)
  x0 = counter[0] + schedule[0]
  x1 = counter[1] + schedule[1]
  for block in range(5):
    for rotation in _THREEFRY_ROTATIONS[block % 2]:
      x0 = x0 + x1
      x1 = tf.bitwise.bitwise_xor(_rotate_left(x1, rotation), x0)
    x0 = x0 + schedule[(block + 1) % 3]
    x1 = x1 + schedule[(block + 2) % 3] + _uint32(block + 1)
  return x0, x1


def _xor_shift(bits, distance):
  shifted = tf.bitwise.right_shift(bits, _uint32(distance))
  return tf.bitwise.bitwise_xor(bits, shifted)


def _rotate_left(bits, distance):
  return tf.bitwise.bitwise_or(
    tf.bitwise.left_shift(bits, _uint32(distance)),
    tf.bitwise.right_shift(bits, _uint32(32 - distance)),
  )


def _uint32(value):
  return tf.constant(value, tf.uint32)
