"""Ternary sums with error feedback, against a reference in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import gradients
from terngrad.codec import policy
from terngrad.codec import registry
from terngrad.exchange import cluster
from terngrad.exchange import feedback
from terngrad.exchange import group
from terngrad.exchange import ways

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


@pytest.mark.parametrize('text', ['ternary', 'ternary:packing=two_bit'])
def test_what_a_step_leaves_out_is_sent_by_the_next(text):
  specs = [policy.VariableSpec(f'v{i}', s) for i, s in enumerate(SHAPES)]
  codec = gradients.gradient_codec(specs, [registry.parse(text)] * len(specs))
  alone = group.Group(cluster.make({'worker': ['127.0.0.1:1']}, 'worker', 0), 1)
  plan = ways.plan(codec, alone, WORKERS, ways.LOSSY)
  rng = np.random.default_rng(1)
  # A scaler for each variable; codes are in units of it.
  shared = tf.constant([0.5, 1.0, 2.0])
  scalers = np.repeat(shared, [int(np.prod(s)) for s in SHAPES])
  kept = np.zeros(len(scalers))
  for step in range(12):
    payloads = []
    for worker in range(WORKERS):
      values = [
        tf.constant(s * rng.standard_normal(shape) / 2, tf.float32)
        for s, shape in zip(shared, SHAPES, strict=True)
      ]
      keys = codec.keys(3, tf.constant(step, tf.int64), worker)
      payloads.append(codec.encode(values, shared, shared, keys))
    payloads = tf.stack(payloads)
    exact = np.concatenate(
      [np.ravel(v) for v in codec.decode_mean([payloads], shared)]
    )
    codes, scaler = nearest(exact / scalers + kept)
    kept = exact / scalers + kept - scaler * codes
    received = plan.decode(plan.move(payloads), shared)
    assert [tuple(v.shape) for v in received] == SHAPES
    np.testing.assert_allclose(
      np.concatenate([np.ravel(v) for v in received]),
      scaler * codes * scalers,
      rtol=1e-5,
      atol=1e-6,
    )
