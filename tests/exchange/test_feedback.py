"""Ternary sums with error feedback, against a reference in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.cluster import spec
from terngrad.codec import bucketing
from terngrad.codec import gradients
from terngrad.codec import one_round
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.exchange import algorithms
from terngrad.exchange import collective
from terngrad.exchange import feedback
from terngrad.exchange import group

WORKERS = 4
SHAPES = [(7, 11), (), (1000,)]


def nearest(values):
  """The reference of `feedback.nearest`, on float64."""
  sizes = np.abs(values)
  chosen = sizes > 0.7 * sizes.mean()
  scaler = sizes[chosen].mean() if chosen.any() else 0.0
  return np.where(chosen, np.sign(values), 0), scaler


def test_what_is_large_becomes_its_mean_magnitude():
  codes, scaler = feedback.nearest(tf.constant([[3.0, -1.0], [0.1, 0.0]]), 4)
  np.testing.assert_array_equal(codes, [[1, -1], [0, 0]])
  assert scaler == 2.0
  codes, scaler = feedback.nearest(tf.zeros([5]), 0)
  assert not np.any(codes)
  assert scaler == 0.0


def test_the_error_is_smaller_than_the_values():
  rng = np.random.default_rng(0)
  for values in (
    rng.standard_normal(999),
    rng.standard_cauchy(999),
    rng.integers(-1, 2, 999) / 4,
    np.eye(1, 999)[0],
  ):
    codes, scaler = feedback.nearest(tf.constant(values, tf.float32), 999)
    error = values - float(scaler) * codes.numpy()
    assert np.sum(error**2) < np.sum(values**2)


def codec_of(text):
  specs = [policy.VariableSpec(f'v{i}', s) for i, s in enumerate(SHAPES)]
  return bucketing.gradient_codec(specs, [registry.method(text)] * len(specs))


def exchange_of(algorithm=algorithms.LOSSY):
  alone = group.Group(spec.make({'worker': ['127.0.0.1:1']}, 'worker', 0), 1)
  return collective.Collective(alone, ('/CPU:0',), WORKERS, algorithm)


@pytest.mark.parametrize(
  'text',
  [
    'ternary',
    pytest.param('ternary:packing=two_bit', marks=pytest.mark.slow),
  ],
)
def test_what_a_step_leaves_out_is_sent_by_the_next(text):
  codec, exchange = codec_of(text), exchange_of()
  (message,) = codec.messages(0)
  residuals = [
    tf.Variable(tf.zeros(shape)) for shape in exchange.residuals(codec)
  ]

  @tf.function
  def exchanged(payloads, shared, step):
    received = exchange.combine([message], [payloads], residuals)
    turn = gradients.Turn(3, step, WORKERS, shared=shared)
    return codec.decode(received, [()], turn)[0]

  rng = np.random.default_rng(1)
  # A scaler for each variable; codes are in units of it.
  shared = tf.constant([0.5, 1.0, 2.0])
  scalers = np.repeat(shared, [int(np.prod(s)) for s in SHAPES])
  kept = np.zeros(len(scalers))
  for number in range(6):
    step = tf.constant(number, tf.int64)
    payloads = []
    for worker in range(WORKERS):
      values = [
        tf.constant(s * rng.standard_normal(shape) / 2, tf.float32)
        for s, shape in zip(shared, SHAPES, strict=True)
      ]
      keys = codec.keys(3, step, worker)
      payloads.append(one_round.encode(codec, values, shared, shared, keys))
    payloads = tf.stack(payloads)
    exact = np.concatenate(
      [np.ravel(v) for v in one_round.decode_mean(codec, [payloads], shared)]
    )
    codes, scaler = nearest(exact / scalers + kept)
    kept = exact / scalers + kept - scaler * codes
    received = exchanged(payloads, shared, step)
    assert [tuple(v.shape) for v in received] == SHAPES
    np.testing.assert_allclose(
      np.concatenate([np.ravel(v) for v in received]),
      scaler * codes * scalers,
      rtol=1e-5,
      atol=1e-6,
    )
    np.testing.assert_allclose(
      feedback.elements_of(residuals[0][tf.newaxis], message, 1),
      kept,
      rtol=1e-5,
      atol=1e-5,
    )


@pytest.mark.parametrize('text', ['ternary', 'ternary:packing=two_bit'])
def test_residuals_are_the_same_elements_for_any_number_of_processes(text):
  (message,) = codec_of(text).messages(0)
  elements = tf.range(1.0, message.num_elements + 1.0)
  for processes in (1, 2, 3, 7, 200):
    found = tf.stack(
      [
        feedback.slices_of(elements, message, processes, rank)
        for rank in range(processes)
      ]
    )
    shape = feedback.residual_shape(message, processes)
    assert tuple(found.shape) == (processes, *shape)
    # Nothing is said of words and places past the end.
    assert np.count_nonzero(found) == message.num_elements
    np.testing.assert_array_equal(
      feedback.elements_of(found, message, processes), elements
    )


def test_only_what_is_rounded_keeps_something():
  ternary, plain = codec_of('ternary'), codec_of('identity')
  words = ternary.messages(0)[0].num_words
  assert exchange_of().residuals(ternary) == [(20, words)]
  assert exchange_of().residuals(plain) == [()]
  assert exchange_of('two_shot').residuals(ternary) == [()]


def test_without_residuals_nothing_is_rounded():
  codec, exchange = codec_of('ternary'), exchange_of()
  payloads = tf.zeros([WORKERS, codec.num_words], tf.int32)
  ((received,),) = exchange.combine(codec.messages(0), [payloads])
  np.testing.assert_array_equal(received.parts[0], payloads)
