"""What others do for the same purpose, written down to be compared with.

Each is a pair of jobs on one gradient, with the bits an element that it sends.
The probe, here the standard deviation, is part of encoding, as for the codecs.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.measure import timing

_CLIP_FACTOR = 2.5
_PLACES = 20


class Rival(NamedTuple):
  """Another way to send a gradient.

  Attributes:
    name: str.
    bits: an element.
    jobs: dict of 'encode' and 'decode' to functions without arguments.
  """

  name: str
  bits: float
  jobs: dict[str, Callable]


def rivals(gradient, times):
  """All of them.

  Args:
    gradient: float32 [n].
    times: int, how often each job does its work.

  Returns:
    List of `Rival`.
  """
  return [
    _numpy(gradient.numpy(), times),
    _naive(gradient, times),
    _int8(gradient, times),
  ]


def _numpy(gradient, times):
  """TernGrad with base-3 words in NumPy, one core, as research code has it."""
  rng = np.random.default_rng(1)
  width = -(-gradient.size // _PLACES)
  scaler = np.float32(_CLIP_FACTOR * gradient.std())

  def encode():
    limit = np.float32(_CLIP_FACTOR * gradient.std())
    chance = np.minimum(np.abs(gradient), limit) / limit
    fires = rng.random(gradient.size, np.float32) < chance
    digits = np.ones(width * _PLACES, np.uint32)
    digits[: gradient.size] += (fires * np.sign(gradient)).astype(np.uint32)
    words = np.zeros(width, np.uint32)
    for plane in digits.reshape(_PLACES, width)[::-1]:
      words = words * np.uint32(3) + plane
    return words

  words = encode()

  def decode():
    rest = words
    planes = []
    for _ in range(_PLACES):
      planes.append(rest % np.uint32(3))
      rest = rest // np.uint32(3)
    digits = np.concatenate(planes)[: gradient.size]
    return (digits.astype(np.float32) - 1) * scaler

  def repeat(work):
    return lambda: [work() for _ in range(times)][-1]

  return Rival(
    'numpy', 1.6, {'encode': repeat(encode), 'decode': repeat(decode)}
  )


def _naive(gradient, times):
  """TernGrad in plain TensorFlow operations: float codes, not packed."""

  def encode(i, gradient):
    limit = _CLIP_FACTOR * tf.math.reduce_std(gradient)
    clipped = tf.clip_by_value(gradient, -limit, limit)
    draw = tf.random.uniform(tf.shape(gradient), 0.0, limit)
    zeros = tf.zeros_like(gradient)
    return [tf.where(draw < tf.abs(clipped), tf.sign(gradient), zeros)]

  codes = encode(0, gradient)[0]
  return Rival(
    'naive TensorFlow',
    32.0,
    {
      'encode': _job(encode, times, gradient),
      'decode': _job(lambda i, codes: [codes * 0.1], times, codes),
    },
  )


def _int8(gradient, times):
  """As GRACE sends it: signs of one byte and a scaler of each worker.

  Xu et al., GRACE, ICDCS 2021; github.com/sands-lab/grace, TernGrad.
  """

  def encode(i, gradient):
    limit = _CLIP_FACTOR * tf.math.reduce_std(gradient)
    clipped = tf.clip_by_value(gradient, -limit, limit)
    magnitudes = tf.abs(clipped)
    scaler = tf.reduce_max(magnitudes)
    draw = tf.random.uniform(tf.shape(gradient), 0.0, scaler)
    signs = tf.where(draw < magnitudes, tf.sign(gradient), 0.0)
    return [tf.cast(signs, tf.int8)]

  codes = encode(0, gradient)[0]
  return Rival(
    'int8, as GRACE',
    8.0,
    {
      'encode': _job(encode, times, gradient),
      'decode': _job(
        lambda i, codes: [tf.cast(codes, tf.float32) * 0.1], times, codes
      ),
    },
  )


def _job(work, times, argument):
  function = timing.repeated(work, times)
  return lambda: function(argument)
