"""Quality of a method: bits, entropy, error and bias."""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec import coded
from terngrad.codec import method as methods
from terngrad.codec.stages import planes
from terngrad.codec.stages import tracing
from terngrad.measure import payloads
from terngrad.reduce import gradients

_SEED = 2


class Quality(NamedTuple):
  """Accuracy and size of a method's messages, in its first step.

  Attributes:
    bits_by_formula: bits per element that a worker sends, including probes, by
      the formula of the method.
    bits_by_length: the same, by the length of the messages.
    entropy: bits per element of the drawn codes; NaN for methods without a
      quantizer.
    error: squared error of the mean of one worker relative to the gradient's
      squared norm.
    bias: z-score of the mean error towards zero, over all elements; near
      0 +- 1 if unbiased. NaN if nothing is random, or without a quantizer.
  """

  bits_by_formula: float
  bits_by_length: float
  entropy: float
  error: float
  bias: float


class _DrawSums:
  """Sums over draws of the decoded gradients."""

  def __init__(self, size: int) -> None:
    self.values = np.zeros(size)
    self.squares = np.zeros(size)

  def bias(self, aim: np.ndarray, draws: int) -> float:
    """Returns the z-score of the mean error towards zero, or NaN."""
    means = self.values / draws
    variance = (self.squares / draws - np.square(means)) / (draws - 1)
    excess = np.sum(np.sign(aim) * (means - aim))
    spread = np.sqrt(np.sum(np.maximum(variance, 0.0)))
    return float(excess / spread) if spread else float('nan')


def measure(
  codec: gradients.GradientCodec,
  alone: gradients.GradientCodec,
  values: Sequence[tf.Tensor],
  draws: int,
  num_workers: int = 8,
  drawn: Callable[[], object] = lambda: None,
) -> Quality:
  """Measures the quality of a method.

  Args:
    codec: of one bucket, for `num_workers`; its messages are counted.
    alone: the same method for one worker; its error is measured.
    values: float32 gradients.
    draws: >= 2, how often the same gradients are sent.
    num_workers: the number of workers of `codec`.
    drawn: called after each draw. The first one compiles.
  """

  def send(number: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
    step = payloads.worker_step(alone, _SEED, number, 1)
    sent = payloads.send(alone, values, step)
    return sent.probe, payloads.decode(alone, sent.words, sent, 1, step)

  # TensorFlow counts the traces of each partial separately.
  program = tracing.function(
    functools.partial(send), jit_compile=alone.compiled
  )
  flat = _flat(values)
  totals, error = _DrawSums(flat.size), 0.0
  for draw in range(draws):
    probe, means = program(tf.constant(draw, tf.int64))
    decoded = _flat(means)
    totals.values += decoded
    totals.squares += np.square(decoded)
    error += np.sum(np.square(decoded - flat)) / np.sum(np.square(flat)) / draws
    drawn()
  formula, length = _bits(codec, values, num_workers)
  method = alone.buckets[0].method
  if not isinstance(method, coded.Code) or not method.quantizer:
    return Quality(formula, length, float('nan'), error, float('nan'))
  limits = _limits(method, probe, values)
  return Quality(
    bits_by_formula=formula,
    bits_by_length=length,
    entropy=_entropy(decoded, limits),
    error=error,
    bias=totals.bias(np.clip(flat, -limits, limits), draws),
  )


def _flat(values: Sequence[tf.Tensor]) -> np.ndarray:
  """Returns tensors as one float64 [elements]."""
  return np.concatenate([np.ravel(v) for v in values]).astype(np.float64)


def _bits(
  codec: gradients.GradientCodec,
  values: Sequence[tf.Tensor],
  num_workers: int,
) -> tuple[float, float]:
  """Returns bits per element by formula and by length."""
  step = payloads.worker_step(codec, _SEED, 0, num_workers)
  words = payloads.send(codec, values, step).words
  sent = sum(
    int(codec.sent_words(one[tf.newaxis], number)[0])
    for number, one in enumerate(words)
  )
  size = codec.num_elements
  length = 32 * (sent + codec.num_probes) / size
  return codec.bits(num_workers) / size, length


def _limits(
  code: coded.Code, probe: tf.Tensor, values: Sequence[tf.Tensor]
) -> np.ndarray:
  """Returns the scaler of each element."""
  sizes = methods.sizes_of([value.shape for value in values])
  if code.group_size:
    return planes.spread_groups(probe, sizes, code.group_size).numpy()
  return np.repeat(probe, sizes)


def _entropy(values: np.ndarray, scalers: np.ndarray) -> float:
  """Returns the entropy in bits per element of codes `values / scalers`."""
  codes = np.rint(values / np.where(scalers > 0, scalers, 1)).astype(np.int64)
  _, counts = np.unique(codes, return_counts=True)
  shares = counts / counts.sum()
  return float(-np.sum(shares * np.log2(shares)))
