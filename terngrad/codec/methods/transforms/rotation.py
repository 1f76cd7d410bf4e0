"""Random signs and a Hadamard matrix make any elements nearly Gaussian.

The rotation of Suresh et al., Distributed Mean Estimation with Limited
Communication, ICML 2017, https://arxiv.org/abs/1611.00429, section 3, in
blocks.
"""

import math

import tensorflow as tf

from terngrad.codec.stages import random_bits

# Elements that are rotated together: a power of 16, the radix of `hadamard`.
BLOCK = 4096
_RADIX = 16


def blocks(num_elements: int) -> tuple[int, int]:
  """Returns (number of blocks, elements of each); zeros fill the last."""
  if num_elements >= BLOCK:
    return -(-num_elements // BLOCK), BLOCK
  return 1, 2 ** math.ceil(math.log2(num_elements))


def rotate(flat: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
  """Multiplies elements by random signs and mixes the elements of each block.

  Args:
    flat: float32 [n], n >= 1.
    key: uint32 [2].

  Returns:
    float32 [blocks, block].
  """
  size = flat.shape[0]
  count, block = blocks(size)
  padded = tf.pad(flat, [[0, count * block - size]])
  padded *= signs(key, count * block)
  return hadamard(tf.reshape(padded, [count, block]))


def unrotate(rows: tf.Tensor, key: tf.Tensor, num_elements: int) -> tf.Tensor:
  """Inverts `rotate` and multiplies by the size of a block.

  Returns:
    float32 [num_elements].
  """
  flat = tf.reshape(hadamard(rows), [-1])
  return (flat * signs(key, flat.shape[0]))[:num_elements]


def signs(key: tf.Tensor, size: int) -> tf.Tensor:
  """Draws random signs, float32 [size], each 1 or -1."""
  bits = tf.bitcast(random_bits.range_bits(key, size), tf.int32)
  return tf.where(bits < 0, -1.0, 1.0)


def hadamard(rows: tf.Tensor) -> tf.Tensor:
  """Multiplies rows by the Hadamard matrix of their length, a power of 2.

  Uses only sums and differences, in the same order in every mode. Combines 16
  elements at a time, so that four steps need one pass through memory.
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
  """Rounds float32 >= 0 down to powers of two in [2**-126, 2**126].

  Products with them are exact, so that a compiler that fuses a product and a
  sum gets the same bits.
  """
  bits = tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), 0x7F800000)
  return tf.clip_by_value(tf.bitcast(bits, tf.float32), 2.0**-126, 2.0**126)
