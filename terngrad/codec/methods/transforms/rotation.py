"""Random signs and a Hadamard matrix: what makes any elements nearly Gaussian.

The rotation of Suresh et al., Distributed Mean Estimation with Limited
Communication, ICML 2017, https://arxiv.org/abs/1611.00429, section 4, in
blocks.
"""

import math

import tensorflow as tf

from terngrad.codec.stages import random_bits

# Elements that are rotated together: a power of 16, as `hadamard` takes them.
BLOCK = 4096
_RADIX = 16


def blocks(num_elements: int) -> tuple[int, int]:
  """(number of blocks, elements of each); the last is filled with zeros."""
  if num_elements >= BLOCK:
    return -(-num_elements // BLOCK), BLOCK
  return 1, 2 ** math.ceil(math.log2(num_elements))


def rotate(flat: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
  """float32 [blocks, block]: the elements with random signs, mixed.

  Args:
    flat: float32 [n], n >= 1.
    key: uint32 [2].
  """
  size = flat.shape[0]
  count, block = blocks(size)
  padded = tf.pad(flat, [[0, count * block - size]])
  padded *= signs(key, count * block)
  return hadamard(tf.reshape(padded, [count, block]))


def unrotate(rows: tf.Tensor, key: tf.Tensor, num_elements: int) -> tf.Tensor:
  """float32 [num_elements]: the inverse of `rotate`, times the block's size."""
  flat = tf.reshape(hadamard(rows), [-1])
  return (flat * signs(key, flat.shape[0]))[:num_elements]


def signs(key: tf.Tensor, size: int) -> tf.Tensor:
  """float32 [size], each 1 or -1."""
  bits = tf.bitcast(random_bits.range_bits(key, size), tf.int32)
  return tf.where(bits < 0, -1.0, 1.0)


def hadamard(rows: tf.Tensor) -> tf.Tensor:
  """Rows times the Hadamard matrix of their length, a power of 2.

  Only sums and differences, in one order in every mode. Sixteen elements are
  combined at a time, so that memory is passed through once for four steps.
  """
  count, size = rows.shape
  done = 1
  while done < size:
    radix = min(_RADIX, size // done)
    shaped = tf.reshape(rows, [count, size // (done * radix), radix, done])
    parts = tf.unstack(shaped, axis=2)
    step = 1
    while step < radix:
      for i in range(radix):
        if not i & step:
          a, b = parts[i], parts[i + step]
          parts[i], parts[i + step] = a + b, a - b
      step *= 2
    rows = tf.reshape(tf.stack(parts, axis=2), [count, size])
    done *= radix
  return rows


def power_of_two(values: tf.Tensor) -> tf.Tensor:
  """The largest below each of float32 >= 0, from 2**-126 to 2**126.

  Products with it are exact, so that no compiler can make another number of
  them by joining a product and a sum.
  """
  bits = tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), 0x7F800000)
  return tf.clip_by_value(tf.bitcast(bits, tf.float32), 2.0**-126, 2.0**126)
