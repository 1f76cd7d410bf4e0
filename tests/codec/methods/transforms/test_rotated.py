"""Codes of rotated gradients: the errors that theory names."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad import native
from terngrad.codec.methods import registry
from terngrad.codec.methods.transforms import thc
from terngrad.codec.stages import wire
from terngrad.reduce import bucketing
from tests.codec import conformance
from tests.codec import rounds

SIZE = 40_960


def draws_of(kind):
  rng = conformance.rng()
  values = {
    'normal': lambda: rng.normal(size=SIZE),
    'heavy': lambda: rng.standard_t(3, size=SIZE),
    'sparse': lambda: rng.normal(size=SIZE) * (rng.random(SIZE) < 0.01),
  }[kind]()
  return values.astype(np.float32)


def error(decoded, gradient):
  return np.sum((decoded - gradient) ** 2) / np.sum(gradient**2)


@pytest.mark.parametrize('kind', ['normal', 'heavy', 'sparse'])
@pytest.mark.parametrize(
  # 1 / (1 - D) - 1, D the distortion of Max's table 1.
  ('text', 'theory'),
  [
    ('drive', 1 / (1 - 0.3634) - 1),
    ('eden:bits=2', 1 / (1 - 0.1175) - 1),
    ('eden:bits=3', 1 / (1 - 0.03454) - 1),
    ('eden:bits=4', 1 / (1 - 0.009497) - 1),
  ],
)
def test_eden_error_agrees_with_theory_for_any_gradient(text, theory, kind):
  values = draws_of(kind)
  decoded = conformance.round_trip(registry.parse(text), values)
  np.testing.assert_allclose(error(decoded, values), theory, rtol=0.08)


def thc_loss(values=None):
  """The loss of a standard normal number by a table, by integration."""
  x = np.linspace(-8, 8, 20_001)
  weight = np.exp(-(x**2) / 2) / np.exp(-(x**2) / 2).sum()
  scaled = np.clip(x * 15 / 3, -15, 15)
  values = thc.table(3.0) if values is None else values
  index = np.clip(np.searchsorted(values, scaled, side='right') - 1, 0, 14)
  low, high = values[index], values[index + 1]
  variance = (scaled - low) * (high - scaled) * (3 / 15) ** 2
  clipped = (x - scaled * 3 / 15) ** 2
  return np.sum((variance + clipped) * weight)


@pytest.mark.parametrize('kind', ['normal', 'heavy', 'sparse'])
def test_thc_error_agrees_with_its_table(kind):
  values = draws_of(kind)
  codec = rounds.codec_of(registry.method('thc'), [(SIZE,)])
  (decoded,) = rounds.Workers(codec, 1).step(codec, [[values]], 0)
  np.testing.assert_allclose(error(decoded, values), thc_loss(), rtol=0.08)


def test_thc_table_has_less_error_than_other_tables():
  table = thc.table(3.0)
  assert (len(table), table[0], table[-1]) == (16, -15, 15)
  assert np.all(np.diff(table) > 0)
  best, rng = thc_loss(), conformance.rng()
  for moved in range(1, 15):
    for by in (-1, 1):
      other = table.copy()
      other[moved] += by
      if np.all(np.diff(other) > 0):
        assert thc_loss(other) >= best
  for _ in range(50):
    inner = rng.choice(np.arange(-14, 15), 14, replace=False)
    assert thc_loss(np.sort([-15, *inner, 15])) > best


def test_thc_entries_round_trip_and_any_words_are_entries():
  packing = thc.entries(3.0)
  rng = conformance.rng()
  codes = tf.constant(rng.choice(thc.table(3.0), size=1003), tf.int32)
  words = packing.pack_flat(codes)
  assert words.shape == (126,)
  np.testing.assert_array_equal(packing.unpack_flat(words, 1003), codes)
  anything = rng.integers(-(2**31), 2**31, size=50).astype(np.int32)
  assert set(wire.join(packing.unpack(anything)).numpy()) <= {*thc.table(3.0)}


def test_thc_error_falls_with_the_number_of_workers():
  values = draws_of('heavy')
  codec = rounds.codec_of(registry.method('thc:span=4'), [(SIZE,)])
  (one,) = rounds.Workers(codec, 1).step(codec, [[values]], 0)
  (eight,) = rounds.Workers(codec, 8).step(codec, [[values]] * 8, 0)
  # Independent draws; little is clipped at four deviations.
  np.testing.assert_allclose(
    error(eight, values), error(one, values) / 8, rtol=0.1
  )


@pytest.mark.parametrize(
  ('size', 'is_kept'), [(2.0**-90, True), (2.0**-110, False)]
)
def test_thc_decodes_tiny_gradients_to_zero(size, is_kept):
  values = (conformance.rng().normal(size=64) * size).astype(np.float32)
  codec = rounds.codec_of(registry.method('thc'), [(64,)])
  (decoded,) = rounds.Workers(codec, 1).step(codec, [[values]], 0)
  assert np.any(decoded) == is_kept


@pytest.mark.parametrize('before', ['', 'error_feedback+'])
@pytest.mark.gate_every(2)
def test_thc_works_without_kernels(before, monkeypatch):
  monkeypatch.setattr(native, 'available', lambda: False)
  codec = rounds.codec_of(registry.method(f'{before}thc'), [(64,)])
  values = [[conformance.rng().normal(size=64).astype(np.float32)]]
  expected = rounds.Workers(codec, 1).step(codec, values, 0)
  other = bucketing.on_kernels(codec)
  actual = rounds.Workers(other, 1).step(other, values, 0)
  np.testing.assert_array_equal(actual, expected)
