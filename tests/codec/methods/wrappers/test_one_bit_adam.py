"""1-bit Adam: algorithm 1 of the paper in NumPy, with ranges as servers."""

import numpy as np
import pytest

from terngrad.codec.methods import registry
from terngrad.codec.methods.wrappers import one_bit_adam
from terngrad.reduce import bucketing
from tests.codec import rounds

SHAPES = ((12, 10), (7,))
STEPS, WORKERS, WARM_UP = 7, 3, 4
BETA_1, BETA_2, EPSILON = 0.9, 0.99, 1e-8
TEXT = f'one_bit_adam:warm_up={WARM_UP},beta_2={BETA_2}+sign'


def some_gradients(step):
  rng = np.random.default_rng([step, 13])
  values = [
    [rng.normal(size=s).astype(np.float32) for s in SHAPES]
    for _ in range(WORKERS)
  ]
  for own in values:
    own[0][3] = 0  # has no variance
  return values


def one_bit(values):
  """The signs of each range times its mean magnitude; zeros end the last."""
  width = -(-values.size // WORKERS)
  padded = np.zeros(width * WORKERS)
  padded[: values.size] = values.ravel()
  rows = padded.reshape(WORKERS, width)
  scale = np.abs(rows).mean(axis=1, keepdims=True)
  coded = np.where(rows < 0, -scale, scale).ravel()[: values.size]
  return coded.reshape(values.shape)


class Paper:
  """One variable of all workers, float64."""

  def __init__(self, shape):
    self.momentum, self.variance = np.zeros(shape), np.zeros(shape)
    self.errors, self.server = np.zeros((WORKERS, *shape)), np.zeros(shape)

  def step(self, gradients, number):
    gradients = np.stack(gradients).astype(np.float64)
    if number < WARM_UP:
      mean = gradients.mean(axis=0)
      self.momentum = BETA_1 * self.momentum + (1 - BETA_1) * mean
      self.variance = BETA_2 * self.variance + (1 - BETA_2) * mean**2
    else:
      local = BETA_1 * self.momentum + (1 - BETA_1) * gradients + self.errors
      sent = np.stack([one_bit(row) for row in local])
      self.errors = local - sent
      mean = sent.mean(axis=0) + self.server
      self.momentum = one_bit(mean)
      self.server = mean - self.momentum
    update = self.momentum / (np.sqrt(self.variance) + EPSILON)
    return np.where(self.variance == 0, 0, update)


def test_steps_equal_those_of_the_paper():
  method = rounds.Traced(registry.method(TEXT, WORKERS).on_kernels())
  codec = rounds.codec_of(method, SHAPES)
  plain = bucketing.in_float(codec, registry.method('identity'))
  workers = rounds.Workers(codec, WORKERS)
  papers = [Paper(shape) for shape in SHAPES]
  for number in range(STEPS):
    values = some_gradients(number)
    chosen = plain if number < WARM_UP else codec
    means = workers.step(chosen, values, number)
    for i, (mean, paper) in enumerate(zip(means, papers, strict=True)):
      expected = paper.step([own[i] for own in values], number)
      # Some ten roundings a step of momenta below 2, divided by roots of
      # variances above 2**-9.
      np.testing.assert_allclose(
        mean, expected, rtol=0, atol=10 * STEPS * 2 * 2.0**9 * 2.0**-24
      )
      if i == 0:
        assert not np.any(mean[3])


def test_float_steps_after_the_warm_up_keep_the_variance():
  method = registry.method(TEXT, WORKERS)
  codec = rounds.codec_of(method, SHAPES)
  plain = bucketing.in_float(codec, registry.method('identity'))
  workers = rounds.Workers(codec, WORKERS)
  workers.step(plain, some_gradients(0), 0)

  def of(name):
    kinds = [s.name for s in method.states(SHAPES)]
    return [
      value.numpy()
      for kind, value in zip(kinds, workers.shared[0], strict=True)
      if kind == name
    ]

  momentum, variance = of(one_bit_adam.MOMENTUM), of(one_bit_adam.VARIANCE)
  values = some_gradients(1)
  workers.step(plain, values, WARM_UP)
  for old, new, gradients in zip(
    momentum, of(one_bit_adam.MOMENTUM), zip(*values, strict=True), strict=True
  ):
    expected = BETA_1 * old + (1 - BETA_1) * np.mean(gradients, axis=0)
    np.testing.assert_allclose(new, expected, rtol=0, atol=2.0**-20)
  for old, new in zip(variance, of(one_bit_adam.VARIANCE), strict=True):
    np.testing.assert_array_equal(old, new)


def test_payloads_are_those_of_feedback_in_both_directions():
  codec = rounds.codec_of(registry.method(TEXT, WORKERS), SHAPES)
  inner = rounds.codec_of(
    registry.method('error_feedback+bidirectional+sign', WORKERS), SHAPES
  )
  for number in (0, 1):
    assert codec.round_words(number) == inner.round_words(number)
  # Ranges of 40 and 3 elements: two words and one, and two scales.
  assert codec.round_words(1) == 2 + 1 + 2
  assert codec.round_words(0) == 3 * codec.round_words(1)


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('one_bit_adam:warm_up=0+sign', 'warm_up >= 1, .* received warm_up=0'),
    ('one_bit_adam:beta_1=1+sign', 'beta_1=1.0, '),
    ('one_bit_adam:beta_2=-1+sign', 'beta_2=-1.0 and epsilon'),
    ('one_bit_adam:epsilon=0+sign', 'epsilon=0.0. Use one_bit_adam:warm_up'),
    ('one_bit_adam+powersgd', 'expected a codec with one round and no state'),
    ('one_bit_adam+error_feedback+sign', 'received error feedback > sign'),
    ('error_feedback+one_bit_adam+sign', 'received adam'),
  ],
)
def test_unsupported_codes_and_options_are_refused(text, message):
  with pytest.raises(ValueError, match=message):
    registry.method(text, 2)
