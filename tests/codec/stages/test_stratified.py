"""Draws in strata: each worker's own law, errors that offset each other."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits
from terngrad.reduce import bucketing
from terngrad.reduce import gradients
from tests.codec import conformance
from tests.codec import one_round


class Answers:
  """What both classes below are asked, and where strata promise otherwise."""

  per_word = 20

  def make(self):
    return registry.ternary(dither='stratified', workers=8)

  def local_scaler(self, gradient):
    return np.minimum(np.abs(gradient), 2.5 * gradient.std()).max()

  def test_traits_are_those_of_terngrad(self):
    assert self.make().traits == contract.Traits(
      unbiased=True, lossless=False, additive=True, randomness='shared'
    )

  def test_other_key_gives_other_words_if_and_only_if_private(self):
    # Codecs take the key that all workers share; another stratum is enough.
    codec = self.make()
    gradient = conformance.rng().normal(size=1000)
    key = conformance.bucket_key()
    payloads = [
      conformance.encode(
        codec, gradient, key=tf.concat([key[:2], [stratum]], axis=0)
      )[0]
      for stratum in (0, 2**29, 2**31)
    ]
    assert np.any(payloads[0] != payloads[1])
    assert np.any(payloads[1] != payloads[2])
    np.testing.assert_array_equal(
      payloads[0], conformance.encode(codec, gradient, key=key)[0]
    )


@pytest.mark.slow
class TestStratified(Answers, conformance.TernaryConformance):
  """A worker in its stratum keeps all that a worker with its own draws does."""


class TestDraws(Answers, conformance.DrawConformance):
  """So do its draws."""

  def test_key_without_a_stratum_is_refused(self):
    with pytest.raises(ValueError, match='a key of 3 .* received 2'):
      conformance.encode(self.make(), [1.0], key=random_bits.seed_key(1))

  @pytest.mark.statistical
  def test_distribution_is_the_same_in_any_stratum(self):
    gradient = self.gradient()
    local_probe = conformance.probe(self.make(), gradient).numpy()
    sample = conformance.sampler_of(type(self))
    drawn = sample(gradient, local_probe, local_probe, 3 * 2**29 + 1)
    conformance.check_law(
      drawn, self.mean(gradient, local_probe, local_probe), float(local_probe)
    )


def model(size, num_workers, dither='stratified'):
  codec = registry.ternary(0, dither=dither, workers=num_workers)
  spec = policy.VariableSpec('v', (size,), False)
  return bucketing.gradient_codec([spec], [codec])


def mean_of(code, values, step=1):
  """float32 [n], the decoded mean of float32 [workers, n], and the scaler."""
  shared_probe = gradients.agree(
    tf.stack([one_round.probe(code, [v]) for v in values])
  )
  words = [
    one_round.encode(
      code,
      [v],
      one_round.probe(code, [v]),
      shared_probe,
      code.keys(1, step, worker),
    )
    for worker, v in enumerate(values)
  ]
  (mean,) = one_round.decode_mean(code, [tf.stack(words)], shared_probe)
  return mean.numpy(), shared_probe.numpy()[0]


@pytest.mark.parametrize('num_workers', [1, 2, 3, 8, 100])
@pytest.mark.gate_every(3)
def test_strata_are_equal_and_change_their_order_each_step(num_workers):
  orders = []
  for step in range(20):
    key = random_bits.fold_in(random_bits.seed_key(1), tf.constant(step))
    strata = [
      int(random_bits.stratum(key, worker, num_workers))
      for worker in range(num_workers)
    ]
    shares = [rank * 2**32 // num_workers for rank in range(num_workers)]
    assert sorted(strata) == shares
    orders.append(tuple(strata))
  if num_workers > 2:
    assert len(set(orders)) > 3


def test_workers_share_the_hash_and_differ_in_their_stratum():
  keys = np.stack([model(5, 4).keys(1, 2, w)[0] for w in range(4)])
  assert len(np.unique(keys[:, :2], axis=0)) == 1
  assert sorted(keys[:, 2]) == [0, 2**30, 2**31, 3 * 2**30]


@pytest.mark.parametrize('num_workers', [2, 3, 8])
def test_mean_of_equal_gradients_is_at_most_one_code_away(num_workers):
  values = np.random.default_rng(0).normal(size=5000).astype(np.float32)
  code = model(values.size, num_workers)
  mean, scaler = mean_of(code, [tf.constant(values)] * num_workers)
  # In 23 bits, the shares themselves are rounded.
  limit = scaler / num_workers * (1 + 2.0**-20)
  assert np.max(np.abs(mean - values)) <= limit
  # Draws of their own do not do that.
  private = model(values.size, num_workers, 'private')
  mean, _ = mean_of(private, [tf.constant(values)] * num_workers)
  assert np.max(np.abs(mean - values)) > limit


@pytest.mark.statistical
@pytest.mark.parametrize(
  ('common', 'gain'), [(0.0, 1.5), (0.9, 2.3)], ids=('unlike', 'alike')
)
@pytest.mark.gate_every(2)
def test_stratified_draws_reduce_the_error_of_the_mean(common, gain):
  # Gaussian gradients of 8 workers that share a part of their energy, clipped
  # at 2.5 sigma; known to gain about 1.9 and 2.8.
  rng = np.random.default_rng(3)
  size, num_workers = 2**17, 8
  noise = rng.normal(size=(num_workers, size)) * np.sqrt(1 - common)
  values = noise + rng.normal(size=size) * np.sqrt(common)
  values = np.clip(values, -2.5, 2.5).astype(np.float32)
  errors = {}
  for dither in ('private', 'stratified'):
    code = model(size, num_workers, dither)
    mean, _ = mean_of(code, [tf.constant(v) for v in values])
    errors[dither] = np.mean(np.square(mean - values.mean(axis=0)))
  assert errors['private'] / errors['stratified'] > gain


@pytest.mark.parametrize('workers', [0, -1, 2**15])
def test_number_of_workers_is_required(workers):
  with pytest.raises(ValueError, match='expected a number of workers from 1'):
    registry.ternary(dither='stratified', workers=workers)


def test_more_workers_than_strata_are_refused():
  text = 'error_feedback+ternary:dither=stratified,workers=2'
  assert registry.method(text, 2).strata == 2
  with pytest.raises(ValueError, match='expected workers=3 or more, received'):
    registry.method(text, 3)


def test_unknown_dither_is_refused():
  with pytest.raises(ValueError, match='expected one of private, stratified'):
    registry.ternary(dither='shared')
