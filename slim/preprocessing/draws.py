"""Random numbers of one example, which depend only on its seed."""

import tensorflow as tf


def uniform(seed: tf.Tensor, count: int) -> tf.Tensor:
  """Draws independent uniform numbers.

  Args:
    seed: int64 [2]: the run's seed, and the example's.
    count: how many numbers.

  Returns:
    float32 [count], uniform in [0, 1). The first k do not depend on `count`.
  """
  # A multiple of four, because the generator makes four numbers at once.
  rounded = -(-count // 4) * 4
  numbers = tf.random.stateless_uniform([rounded], seed, alg='philox')
  return numbers[:count]


def between(number: tf.Tensor, low: float, high: float) -> tf.Tensor:
  """Scales numbers from [0, 1) to [low, high)."""
  return low + number * (high - low)


def index(number: tf.Tensor, count: tf.Tensor | int) -> tf.Tensor:
  """Converts numbers in [0, 1) to integers.

  Args:
    number: float32, any shape, a multiple of 2^-23.
    count: int32, number of possible values, 1 to 2^23.

  Returns:
    int32 in [0, count), uniform up to count * 2^-23.
  """
  scaled = tf.cast(number, tf.float32) * tf.cast(count, tf.float32)
  # Rounding could give `count`.
  return tf.minimum(tf.cast(scaled, tf.int32), count - 1)
