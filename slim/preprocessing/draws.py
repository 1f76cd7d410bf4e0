"""Random numbers of one example: functions of its seed and of nothing else."""

import tensorflow as tf


def uniform(seed: tf.Tensor, count: int) -> tf.Tensor:
  """Draws independent numbers.

  Args:
    seed: int64 [2]: of the run, and the example's own.
    count: how many.

  Returns:
    float32 [count], uniform in [0, 1). The first k do not depend on `count`.
  """
  # A multiple of four: the generator makes four numbers at once.
  rounded = -(-count // 4) * 4
  numbers = tf.random.stateless_uniform([rounded], seed, alg='philox')
  return numbers[:count]


def between(number: tf.Tensor, low: float, high: float) -> tf.Tensor:
  """Stretches numbers in [0, 1) to [low, high)."""
  return low + number * (high - low)


def index(number: tf.Tensor, count: tf.Tensor | int) -> tf.Tensor:
  """Turns numbers in [0, 1) into whole ones.

  Args:
    number: float32, any shape, a multiple of 2^-23.
    count: int32, how many values there are, 1 to 2^23.

  Returns:
    int32 in [0, count), uniform up to count * 2^-23.
  """
  scaled = tf.cast(number, tf.float32) * tf.cast(count, tf.float32)
  # Rounding could reach `count`.
  return tf.minimum(tf.cast(scaled, tf.int32), count - 1)
