"""Other implementations of gradient compression, for comparison.

Each is a pair of jobs on one gradient, with the bits per element that it sends.
Encoding includes the probe, here the standard deviation, as for the codecs.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.measure import timing

_CLIP_FACTOR = 2.5
_DIGITS = 20


class Rival(NamedTuple):
  """Another implementation.

  Attributes:
    name: name in tables.
    bits: bits per element that it sends.
    jobs: 'encode' and 'decode'.
  """

  name: str
  bits: float
  jobs: dict[str, timing.Job]


def rivals(gradient: tf.Tensor, times: int) -> list[Rival]:
  """Returns all rivals.

  Args:
    gradient: float32 [n].
    times: number of repetitions in each job.
  """
  return [
    _numpy(gradient.numpy(), times),
    Rival('naive TensorFlow', 32.0, _tensorflow(gradient, times, tf.float32)),
    Rival('int8, as GRACE', 8.0, _tensorflow(gradient, times, tf.int8)),
  ]


def _numpy(gradient: np.ndarray, times: int) -> Rival:
  """TernGrad with base-3 words in NumPy on one core, as in research code."""
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
    'numpy',
    1.6,
    {
      'encode': lambda: [encode() for _ in range(times)][-1],
      'decode': lambda: [decode() for _ in range(times)][-1],
    },
  )


def _tensorflow(
  gradient: tf.Tensor, times: int, dtype: tf.DType
) -> dict[str, timing.Job]:
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

  return {
    'encode': timing.repeat(encode, times, gradient),
    'decode': timing.repeat(decode, times, *encode(0, gradient)),
  }
