"""Speed and quality of a codec: jobs to time, and quality metrics."""

import functools
from collections.abc import Callable
from typing import NamedTuple
from typing import ParamSpec
from typing import TypeVar

import numpy as np
import tensorflow as tf

from terngrad.codec import coded
from terngrad.codec import method
from terngrad.codec.stages import planes
from terngrad.codec.stages import random_bits
from terngrad.measure import timing
from terngrad.native import ops
from terngrad.step import fused_updates
from terngrad.step import optimizers
from terngrad.step import replicas
from terngrad.step import updates

WORKERS = 8
_P = ParamSpec('_P')
_T = TypeVar('_T')


class Quality(NamedTuple):
  """Accuracy and size of a codec's payloads.

  Attributes:
    bits_by_formula: bits per element that a worker sends, including probes, by
      the codec's formula.
    bits_by_length: the same, by the length of the payload.
    entropy: bits per element of the drawn codes; NaN for codecs without a
      quantizer.
    error: squared error of a decoded gradient relative to the gradient's
      squared norm.
    bias: z-score of the mean error towards zero, over all elements; near
      0 +- 1 if unbiased. NaN if nothing is random.
  """

  bits_by_formula: float
  bits_by_length: float
  entropy: float
  error: float
  bias: float


def jobs(
  codec: coded.Code, gradients: list[tf.Tensor], times: int
) -> dict[str, timing.Job]:
  """Returns the jobs to time for a codec.

  Args:
    codec: the codec.
    gradients: float32.
    times: number of repetitions in each job.

  Returns:
    'probe', 'encode' (including its probe), 'decode', 'decode_sum' (of 8
    workers), 'update' (decodes the sum of 2 workers, then updates parameters
    with momentum) and, if the codec supports it, 'fused_update' (the same in
    one kernel).
  """
  shapes = [gradient.shape for gradient in gradients]
  probe, encode = _program(codec, codec.probe), _program(codec, codec.encode)
  decode = _program(
    codec,
    lambda words, probes: codec.decode_sum(
      [words], probes, shapes, 1.0 / WORKERS
    ),
  )
  key = random_bits.seed_key(1)

  def probe_and_encode(i: tf.Tensor, *gradients: tf.Tensor) -> list[tf.Tensor]:
    probes = probe(list(gradients))
    one_key = _add_stratum(key + tf.cast(i, tf.uint32))
    return [encode(list(gradients), probes, probes, one_key)]

  probes = probe(gradients)
  words = encode(gradients, probes, probes, _add_stratum(key))[tf.newaxis]
  several = tf.tile(words, [WORKERS, 1])
  ends = _updates(codec, words, probes, shapes)

  def decode_payload(i: tf.Tensor, *payload: tf.Tensor) -> list[tf.Tensor]:
    del i
    return decode(*payload)

  return {
    'probe': timing.repeat(lambda i, *g: [probe(list(g))], times, *gradients),
    'encode': timing.repeat(probe_and_encode, times, *gradients),
    'decode': timing.repeat(decode_payload, times, words, probes),
    'decode_sum': timing.repeat(decode_payload, times, several, probes),
    **{name: timing.repeat(end, times) for name, end in ends.items()},
  }


def _program(codec: coded.Code, function: Callable[_P, _T]) -> Callable[_P, _T]:
  """Returns the function as training runs it: compiled if the codec is."""
  if not codec.compiled:
    return function
  # TensorFlow counts retraces by source line, over all codecs, and warns of too
  # many. It counts each partial separately.
  return tf.function(functools.partial(function), jit_compile=True)


def _updates(
  codec: coded.Code,
  words: tf.Tensor,
  probes: tf.Tensor,
  shapes: list[tf.TensorShape],
) -> dict[str, Callable[[tf.Tensor], list[tf.Tensor]]]:
  """Returns jobs that decode two workers' words and update parameters."""
  optimizer = optimizers.Momentum()
  parameters, velocities = (
    tuple(tf.Variable(tf.zeros(s), trainable=False) for s in shapes)
    for _ in range(2)
  )
  slots = tuple({optimizers.MOMENTUM: v} for v in velocities)
  replica = replicas.Replica('/CPU:0', parameters, (), slots, ())
  update = updates.Update(replica, optimizer, None)
  parts = [tf.tile(words, [2, 1])]
  rates = tf.constant(1e-3), tf.constant(0.0)
  decode = _program(codec, lambda: codec.decode_sum(parts, probes, shapes, 0.5))

  def decode_and_update(i: tf.Tensor) -> list[tf.Tensor]:
    update(decode(), [], (tf.cast(i, tf.int64), *rates))
    return [rates[0]]

  digits = codec.digits
  if not digits:
    return {'update': decode_and_update}

  def fused_update(i: tf.Tensor) -> list[tf.Tensor]:
    del i
    tensors = fused_updates.update_tensors(replica, optimizer)
    piece = method.Piece(0, parts)
    ops.fused_update(digits, piece, probes, 0.5, tensors, rates)
    return [rates[0]]

  return {'update': decode_and_update, 'fused_update': fused_update}


def _add_stratum(key: tf.Tensor) -> tf.Tensor:
  """Extends uint32 [2] to [3]; codecs without strata ignore the third."""
  return tf.concat([key, [0]], axis=0)


def quality(
  codec: coded.Code, gradients: list[tf.Tensor], draws: int
) -> Quality:
  """Measures the quality of a codec.

  Args:
    codec: the codec.
    gradients: float32.
    draws: >= 2, number of payloads of the same gradients.
  """
  shapes = [gradient.shape for gradient in gradients]

  def send(key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    probes = codec.probe(gradients)
    words = codec.encode(gradients, probes, probes, key)
    return probes, words, codec.decode_sum([words[tf.newaxis]], probes, shapes)

  # A partial avoids retracing warnings, as in `_program`.
  program = tf.function(functools.partial(send), jit_compile=codec.compiled)
  size = sum(shape.num_elements() for shape in shapes)
  flat = np.concatenate([np.ravel(g) for g in gradients]).astype(np.float64)
  total, squares, error = np.zeros(size), np.zeros(size), 0.0
  for draw in range(draws):
    key = random_bits.fold_in(random_bits.seed_key(2), tf.constant(draw))
    probes, words, decoded = program(_add_stratum(key))
    values = np.concatenate([np.ravel(d) for d in decoded])
    total += values
    squares += np.square(values, dtype=np.float64)
    error += np.sum(np.square(values - flat)) / np.sum(np.square(flat)) / draws
  if codec.group_size:
    sizes = [shape.num_elements() for shape in shapes]
    limits = planes.spread_groups(probes, sizes, codec.group_size).numpy()
  else:
    limits = np.repeat(probes, [shape.num_elements() for shape in shapes])
  quantizer = codec.quantizer
  aim = np.clip(flat, -limits, limits) if quantizer else flat
  variance = (squares / draws - np.square(total / draws)) / (draws - 1)
  excess = np.sum(np.sign(aim) * (total / draws - aim))
  spread = np.sqrt(np.sum(np.maximum(variance, 0.0)))
  return Quality(
    bits_by_formula=codec.bits(size, WORKERS, probes.shape[0]) / size,
    bits_by_length=32 * (int(codec.sent_words(words)) + probes.shape[0]) / size,
    entropy=_entropy(values, limits) if quantizer else float('nan'),
    error=error,
    bias=excess / spread if quantizer and spread else float('nan'),
  )


def _entropy(values: np.ndarray, scalers: np.ndarray) -> float:
  """Returns the entropy in bits per element of codes `values / scalers`."""
  codes = np.rint(values / np.where(scalers > 0, scalers, 1)).astype(np.int64)
  _, counts = np.unique(codes, return_counts=True)
  shares = counts / counts.sum()
  return float(-np.sum(shares * np.log2(shares)))
