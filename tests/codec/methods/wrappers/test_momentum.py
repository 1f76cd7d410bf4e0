"""Momentum correction: algorithm 1 of Deep Gradient Compression, in NumPy."""

import numpy as np
import pytest

from terngrad.codec.methods import registry
from terngrad.reduce import bucketing
from tests.codec import conformance
from tests.codec import rounds

SHAPES = ((12, 10), (7,))
STEPS, WORKERS = 6, 3
MOMENTUM = 0.9


def some_gradients(step):
  rng = np.random.default_rng([step, 5])
  return [
    [rng.normal(size=s).astype(np.float32) for s in SHAPES]
    for _ in range(WORKERS)
  ]


class Reference:
  """One worker by the paper, in float64."""

  def __init__(self, masking, limit):
    self.velocities = [np.zeros(s) for s in SHAPES]
    self.sums = [np.zeros(s) for s in SHAPES]
    self.masking, self.limit = masking, limit

  def send(self, gradients, ratio):
    norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in gradients))
    factor = min(1.0, self.limit / norm) if self.limit else 1.0
    sent = []
    for i, gradient in enumerate(gradients):
      self.velocities[i] = MOMENTUM * self.velocities[i] + gradient * factor
      self.sums[i] = self.sums[i] + self.velocities[i]
      count = max(1, int(np.ceil(ratio * gradient.size)))
      order = np.argsort(-np.abs(self.sums[i]), axis=None, kind='stable')
      chosen = np.zeros(gradient.size, bool)
      chosen[order[:count]] = True
      chosen = chosen.reshape(gradient.shape)
      sent.append(np.where(chosen, self.sums[i], 0))
      self.sums[i] = np.where(chosen, 0, self.sums[i])
      if self.masking:
        self.velocities[i] = np.where(chosen, 0, self.velocities[i])
    return sent


@pytest.mark.parametrize(
  ('options', 'masking', 'clip_norm'),
  [('', True, 0), (':masking=0', False, 0), (':clip_norm=5', True, 5)],
)
def test_steps_equal_those_of_the_paper(options, masking, clip_norm):
  text = f'momentum{options}+topk:ratio=0.1'
  codec = rounds.codec_of(registry.method(text).on_kernels(), SHAPES)
  workers = rounds.Workers(codec, WORKERS)
  limit = clip_norm / WORKERS**0.5
  references = [Reference(masking, limit) for _ in range(WORKERS)]
  for step in range(STEPS):
    values = some_gradients(step)
    means = workers.step(codec, values, step)
    sent = [r.send(v, 0.1) for r, v in zip(references, values, strict=True)]
    for mean, expected in zip(means, zip(*sent, strict=True), strict=True):
      np.testing.assert_allclose(
        mean, np.mean(expected, axis=0), rtol=1e-5, atol=1e-5
      )


def test_momentum_of_powersgd_equals_error_feedback_of_velocities():
  alone, corrected = (
    rounds.codec_of(registry.method(text), SHAPES)
    for text in (
      'error_feedback+powersgd',
      'momentum:masking=0+powersgd',
    )
  )
  expected, workers = (rounds.Workers(c, WORKERS) for c in (alone, corrected))
  velocities = [[np.zeros(s, np.float32) for s in SHAPES]] * WORKERS
  # The residuals of two steps are in the third.
  for step in range(3):
    values = some_gradients(step)
    velocities = [
      [np.float32(MOMENTUM) * v + g for v, g in zip(*pair, strict=True)]
      for pair in zip(velocities, values, strict=True)
    ]
    means = workers.step(corrected, values, step)
    others = expected.step(alone, velocities, step)
    for mean, other in zip(means, others, strict=True):
      np.testing.assert_allclose(mean, other, rtol=1e-4, atol=1e-5)


def test_float_steps_keep_the_velocity():
  codec = rounds.codec_of(registry.method('dgc:ratio=0.1'), SHAPES)
  plain = bucketing.in_float(codec, registry.method('identity'))
  workers = rounds.Workers(codec, WORKERS)
  velocity = [np.zeros(s) for s in SHAPES]
  for step in range(3):
    values = some_gradients(step)
    means = workers.step(plain, values, step)
    for i, mean in enumerate(means):
      own = np.mean([v[i] for v in values], axis=0, dtype=np.float64)
      velocity[i] = MOMENTUM * velocity[i] + own
      np.testing.assert_allclose(mean, velocity[i], rtol=1e-5, atol=1e-5)


def test_float_steps_keep_the_residual_of_the_mean_out_of_the_velocity():
  text = f'momentum:masking=0+bidirectional:workers={WORKERS}+topk:ratio=0.1'
  codec = rounds.codec_of(registry.method(text), SHAPES)
  plain = bucketing.in_float(codec, registry.method('identity'))
  workers = rounds.Workers(codec, WORKERS)
  velocity = [np.zeros(s) for s in SHAPES]
  for step, one in enumerate([codec, codec, plain, plain]):
    values = some_gradients(step)
    means = workers.step(one, values, step)
    for i, own in enumerate(zip(*values, strict=True)):
      mean = np.mean(own, axis=0, dtype=np.float64)
      velocity[i] = MOMENTUM * velocity[i] + mean
  # The first float32 step sent all residuals.
  for mean, expected in zip(means, velocity, strict=True):
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-5)


def test_decay_multiplies_the_residuals():
  codec = rounds.codec_of(
    registry.method('error_feedback:decay=0.5+topk:ratio=0.1'), [(20,)]
  )
  workers = rounds.Workers(codec, 1)
  values = conformance.rng().normal(size=20).astype(np.float32)
  left = np.zeros(20, np.float32)
  for step in range(3):
    (mean,) = workers.step(codec, [[values]], step)
    there = values + np.float32(0.5) * left
    left = np.where(mean != 0, 0, there)
    np.testing.assert_array_equal(mean + left, there)


DENSE = (
  'eden3',
  'fp16',
  'int8',
  'natural',
  'one_bit',
  'qsgd:levels=255',
  'randomk:ratio=1',
  'sign',
  'signsgd',
  'stc:ratio=1',
  'thc',
  'topk:ratio=1',
)


@pytest.mark.parametrize('text', DENSE)
def test_masking_with_a_dense_code_is_refused(text):
  with pytest.raises(ValueError, match='leaves elements out .*:masking=0'):
    registry.method(f'momentum+{text}')
  assert registry.method(f'momentum:masking=0+{text}')


@pytest.mark.parametrize('text', ['identity', 'qsgd', 'ternary', *DENSE])
def test_dense_codes_decode_few_elements_to_zero(text):
  method = registry.method(text, workers=1)
  codec = rounds.codec_of(method, [(512,)])
  values = conformance.rng().normal(size=512).astype(np.float32)
  (mean,) = rounds.Workers(codec, 1).step(codec, [[values]], 0)
  assert (np.mean(mean == 0) < 0.01) == method.traits.dense
