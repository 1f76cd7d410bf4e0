"""Error feedback: nothing is lost in the sum over the steps."""

from itertools import pairwise

import numpy as np
import pytest

from terngrad.codec.methods import registry
from terngrad.codec.methods.wrappers import error_feedback
from terngrad.reduce import bucketing
from tests.codec import rounds

SHAPES = ((12, 10), (7,), ())
STEPS, WORKERS = 6, 3


def some_gradients(step):
  rng = np.random.default_rng([step, 3])
  return [
    [rng.normal(size=s).astype(np.float32) for s in SHAPES]
    for _ in range(WORKERS)
  ]


def residuals(workers):
  """For each worker the list of its residuals."""
  return [
    [r.numpy() for r in own[0][: len(SHAPES)]] for own in workers.worker_states
  ]


def codec_of(text):
  method = registry.method(f'error_feedback+{text}').on_kernels()
  return rounds.codec_of(method, SHAPES)


@pytest.mark.parametrize(
  'text',
  [
    'topk:ratio=0.1',
    'sign',
    'ternary',
    'powersgd',
    'identity',
    pytest.param(
      'ternary:clip_factor=0,packing=huffman243', marks=pytest.mark.slow
    ),
    pytest.param('eden3', marks=pytest.mark.slow),
  ],
)
def test_sent_means_plus_residuals_equal_the_gradients(text):
  codec = codec_of(text)
  workers = rounds.Workers(codec, WORKERS)
  sent, were = workers.totals(codec, map(some_gradients, range(STEPS)))
  for i, total in enumerate(were):
    left = np.mean([r[i] for r in residuals(workers)], axis=0)
    # In each step a worker's sum, its residual and the mean of all are
    # rounded, all of numbers below 2**5.
    limit = STEPS * (WORKERS + 4) * 2.0**5 * 2.0**-24
    np.testing.assert_allclose(sent[i] + left, total, rtol=0, atol=limit)


@pytest.mark.parametrize('text', ['topk:ratio=0.1', 'sign', 'ternary'])
def test_residual_is_the_error_of_the_local_words(text):
  codec = codec_of(text)
  workers = rounds.Workers(codec, WORKERS)
  values = some_gradients(0)
  # The largest are those of worker 0, so that its scalers are the shared ones.
  values[0] = [8 * value for value in values[0]]
  workers.step(codec, values, 0)
  plain = rounds.codec_of(registry.method(text), SHAPES)
  for worker, own in enumerate(values):
    left = residuals(workers)[worker]
    assert any(np.any(r) for r in left)
    if text == 'ternary' and worker:
      continue  # Draws by the number of the worker, which is 0 alone.
    (*said,) = rounds.Workers(plain, 1).step(plain, [own], 0)
    for value, one, residual in zip(own, said, left, strict=True):
      np.testing.assert_array_equal(residual, value - one)


@pytest.mark.parametrize(
  'text', ['topk:ratio=0.1', 'sign:decide=majority', 'ternary']
)
def test_float_step_sends_and_clears_the_residual(text):
  codec = codec_of(text)
  plain = bucketing.in_float(codec, registry.method('identity'))
  workers = rounds.Workers(codec, WORKERS)
  workers.step(codec, some_gradients(0), 0)
  before = residuals(workers)
  values = some_gradients(1)
  means = workers.step(plain, values, 1)
  for i, mean in enumerate(means):
    corrected = [v[i] + r[i] for v, r in zip(values, before, strict=True)]
    expected = np.mean(corrected, axis=0, dtype=np.float64)
    np.testing.assert_allclose(mean, expected, rtol=0, atol=8 * 2.0**-22)
  assert not any(np.any(r) for own in residuals(workers) for r in own)


def test_residuals_have_variable_shapes_and_the_method_is_biased():
  codec = codec_of('ternary')
  (states,) = codec.states()
  assert [s.name for s in states] == [error_feedback.RESIDUAL] * len(SHAPES)
  assert [s.shape for s in states] == list(SHAPES)
  assert not codec.buckets[0].method.traits.unbiased


def shares_left(text, steps, size=16_384):
  """The square of a residual over that of a gradient, after each step."""
  method = registry.method(f'error_feedback+{text}')
  codec = rounds.codec_of(method, ((size,),))
  codec = bucketing.on_kernels(codec)
  workers = rounds.Workers(codec, 1)
  rng = np.random.default_rng(4)
  shares = []
  for step in range(steps):
    values = rng.normal(size=size).astype(np.float32)
    workers.step(codec, [[values]], step)
    shares.append(np.sum(workers.worker_states[0][0][0].numpy() ** 2) / size)
  return shares


def test_ternary_clipped_at_one_deviation_is_contractive():
  # Of a normal number x the code leaves E |x| - x**2 + P(|x| > 1) and the like:
  # 0.2659 of the square in the mean, by integration.
  shares = shares_left('ternary:clip_factor=1', 40)
  np.testing.assert_allclose(shares[0], 0.2659, rtol=0.05)
  # What is left of a sum of independent parts is at most this share of it.
  assert max(shares) < 1.2 * 0.2659 / (1 - 0.2659)


def test_residuals_of_ternary_clipped_at_2_5_deviations_grow():
  shares = shares_left('ternary', 40)
  np.testing.assert_allclose(shares[0], 1.0095, rtol=0.05)
  # All that is left stays, and more comes with each step.
  assert shares[-1] > 20
  assert all(later > 0.9 * before + 0.5 for before, later in pairwise(shares))


@pytest.mark.parametrize('inner', ['error_feedback+topk', 'ef_signsgd'])
def test_error_feedback_around_error_feedback_is_refused(inner):
  method = registry.method(inner)
  with pytest.raises(ValueError, match='expected a codec that does not keep'):
    error_feedback.ErrorFeedback(method)
  # A wrapper between the two hides it from the text, not from the class.
  with pytest.raises(ValueError, match='expected error_feedback once'):
    registry.method(f'error_feedback+{inner}')
