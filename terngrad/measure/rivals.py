"""Other implementations of gradient compression, for comparison.

Each is a pair of jobs on one gradient, with the bits per element that it sends.
Encoding includes the probe, here the standard deviation, as for the codecs.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.measure import timing

_CLIP_FACTOR = 2.5
_DIGITS = 20


class Rival(NamedTuple):
  """Another implementation.

  Attributes:
    bits: bits per element that it sends.
    jobs: 'encode' and 'decode', of the number of repetitions.
  """

  bits: float
  jobs: dict[str, timing.Repeatable]


def _numpy(tensor: tf.Tensor) -> Rival:
  """TernGrad with base-3 words in NumPy on one core, as in research code."""
  gradient = tensor.numpy()
  rng = np.random.default_rng(1)
  width = -(-gradient.size // _DIGITS)
  scaler = np.float32(_CLIP_FACTOR * gradient.std())

  def encode() -> np.ndarray:
    limit = np.float32(_CLIP_FACTOR * gradient.std())
    chance = np.minimum(np.abs(gradient), limit) / limit
    nonzero = rng.random(gradient.size, np.float32) < chance
    digits = np.ones(width * _DIGITS, np.uint32)
    digits[: gradient.size] += (nonzero * np.sign(gradient)).astype(np.uint32)
    words = np.zeros(width, np.uint32)
    for plane in digits.reshape(_DIGITS, width)[::-1]:
      words = words * np.uint32(3) + plane
    return words

  words = encode()

  def decode() -> np.ndarray:
    rest = words
    planes = []
    for _ in range(_DIGITS):
      planes.append(rest % np.uint32(3))
      rest = rest // np.uint32(3)
    digits = np.concatenate(planes)[: gradient.size]
    return (digits.astype(np.float32) - 1) * scaler

  return Rival(
    1.6,
    {
      'encode': lambda times: [encode() for _ in range(times)][-1],
      'decode': lambda times: [decode() for _ in range(times)][-1],
    },
  )


def _tensorflow(bits: float, dtype: tf.DType, gradient: tf.Tensor) -> Rival:
  """TernGrad in plain TensorFlow operations, one number per element.

  float32 is the simplest implementation. int8 is what GRACE sends: signs of one
  byte, and one scaler per worker.

  Xu et al., GRACE, ICDCS 2021; github.com/sands-lab/grace, TernGrad.
  """

  def encode(i: int | tf.Tensor, gradient: tf.Tensor) -> list[tf.Tensor]:
    del i
    limit = _CLIP_FACTOR * tf.math.reduce_std(gradient)
    magnitudes = tf.abs(tf.clip_by_value(gradient, -limit, limit))
    scaler = tf.reduce_max(magnitudes) if dtype == tf.int8 else limit
    draw = tf.random.uniform(tf.shape(gradient), 0.0, scaler)
    signs = tf.where(draw < magnitudes, tf.sign(gradient), 0.0)
    return [tf.cast(signs, dtype)]

  def decode(i: tf.Tensor, codes: tf.Tensor) -> list[tf.Tensor]:
    del i
    return [tf.cast(codes, tf.float32) * 0.1]

  return Rival(
    bits,
    {
      'encode': timing.repeatable(encode, gradient),
      'decode': timing.repeatable(decode, *encode(0, gradient)),
    },
  )


# By name in tables. Each takes a gradient, float32 [n].
RIVALS: dict[str, Callable[[tf.Tensor], Rival]] = {
  'numpy': _numpy,
  'naive TensorFlow': functools.partial(_tensorflow, 32.0, tf.float32),
  'int8, as GRACE': functools.partial(_tensorflow, 8.0, tf.int8),
}
