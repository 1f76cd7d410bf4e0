"""Rotation and three levels: the error that theory names, and no bias."""

import math

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.codec.methods import validation
from terngrad.codec.methods.transforms import eden
from terngrad.codec.methods.transforms import lloyd_max
from terngrad.codec.methods.transforms import rotation
from terngrad.codec.stages import packing
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import tracing
from tests.codec import conformance

# Of three Lloyd-Max levels, made unbiased: 1 / 0.8098 - 1.
THEORY = 0.2349


def rng():
  return np.random.default_rng(7)


def run(codec, gradients, seed=0):
  """(words, decoded arrays) of one worker."""
  gradients = [tf.constant(g, tf.float32) for g in gradients]
  local_probe = codec.probe(gradients)
  key = random_bits.fold_in(random_bits.seed_key(seed), tf.constant(1))
  words = codec.encode(gradients, local_probe, local_probe, key)
  shapes = [g.shape for g in gradients]
  decoded = codec.decode_sum([words[tf.newaxis]], local_probe, shapes)
  return words.numpy(), [d.numpy() for d in decoded]


def error(decoded, gradient):
  return np.sum((decoded - gradient) ** 2) / np.sum(gradient**2)


@pytest.mark.parametrize('draw', ['normal', 'heavy', 'sparse'])
def test_error_agrees_with_theory_for_any_gradient(draw):
  values = {
    'normal': lambda: rng().normal(size=40_960),
    'heavy': lambda: rng().standard_t(3, size=40_960),
    'sparse': lambda: rng().normal(size=40_960) * (rng().random(40_960) < 0.01),
  }[draw]()
  _, (decoded,) = run(eden.eden3(), [values])
  np.testing.assert_allclose(error(decoded, values), THEORY, rtol=0.06)


def test_ternary_has_four_times_the_error_at_the_same_bits():
  values = rng().normal(size=40_960).astype(np.float32)
  losses, bits = [], []
  for text in ('eden3', 'ternary'):
    codec = registry.parse(text)
    words, (decoded,) = run(codec, [values])
    losses.append(error(decoded, values))
    bits.append(32 * words.size / values.size)
  assert losses[1] > 4 * losses[0]
  np.testing.assert_allclose(bits, 1.6, atol=0.02)


@pytest.mark.statistical
def test_error_of_the_mean_over_keys_agrees_with_theory():
  # Unbiased: the error of the mean of n falls as 1 / n. A bias would stay.
  values = rng().standard_t(3, size=4096).astype(np.float32)
  draws = 256
  sample = conformance.sampler(eden.eden3(), values.size, draws)
  local_probe = conformance.probe(eden.eden3(), values).numpy()
  drawn = sample(values, local_probe, local_probe)
  assert error(drawn.mean, values) < 1.1 * THEORY / draws


def test_a_small_variable_keeps_its_size_beside_a_large_one():
  large = rng().normal(size=30_000) * 1e3
  small = rng().normal(size=2_000) * 1e-3
  _, decoded = run(eden.eden3(), [large, small])
  for value, arrived in zip((large, small), decoded, strict=True):
    # They mix in one block, at root mean squares from 1 to 2.
    assert error(arrived, value) < 4 * THEORY


@pytest.mark.parametrize('size', [0, 1, 2, 3, 20, 4095, 4096, 4097, 9000])
def test_words_are_a_key_scales_and_base3_codes(size):
  words, (decoded,) = run(eden.eden3(), [rng().normal(size=size)])
  blocks = 1 if size <= 4096 else -(-size // 4096)
  block = 4096 if size >= 4096 else 2 ** int(np.ceil(np.log2(max(size, 1))))
  expected = 2 + blocks + -(-blocks * block // 20) if size else 0
  assert words.shape == (expected,)
  assert eden.eden3().bits(size, 4) == 32 * (expected + 1)
  assert decoded.shape == (size,)
  np.testing.assert_array_equal(
    validation.validate(eden.eden3(), words, size), words
  )


@pytest.mark.parametrize('values', [[3.0], [0.0] * 5, [1e30, -1e30]], ids=str)
def test_simple_gradients_round_trip(values):
  values = np.array(values, np.float32)
  _, (decoded,) = run(eden.eden3(), [values])
  np.testing.assert_allclose(decoded, values, rtol=1e-6)


def test_hadamard_is_the_matrix_of_sylvester():
  matrix = np.ones((1, 1))
  while len(matrix) < 4096:
    matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    if len(matrix) in (2, 32, 256, 4096):
      # Whole numbers: sums are exact.
      rows = rng().integers(-9, 9, size=(2, len(matrix))).astype(np.float32)
      np.testing.assert_array_equal(
        rotation.hadamard(tf.constant(rows)), rows @ matrix
      )


@pytest.mark.slow
def test_modes_agree_to_the_bit():
  codec = eden.eden3()
  gradients = [
    tf.constant(rng().standard_t(3, size=n), tf.float32) for n in (5000, 70)
  ]
  key = conformance.bucket_key()

  def work(*gradients):
    local_probe = codec.probe(list(gradients))
    words = codec.encode(list(gradients), local_probe, local_probe, key)
    parts = [tf.stack([words, words]), tf.stack([words])]
    return (
      local_probe,
      words,
      *codec.decode_sum(parts, local_probe, [(5000,), (70,)], 1 / 3),
    )

  expected = work(*gradients)
  for compiled in (False, True):
    actual = tracing.function(work, jit_compile=compiled)(*gradients)
    for a, b in zip(actual, expected, strict=True):
      np.testing.assert_array_equal(
        a.numpy().view(np.int32), b.numpy().view(np.int32)
      )


def test_sum_equals_the_sum_of_decoded_payloads():
  values = rng().normal(size=(3, 5000)).astype(np.float32)
  codec = eden.eden3()
  shared_probe = codec.probe([tf.constant(values[0])])
  words, each = [], []
  for worker, gradient in enumerate(values):
    key = conformance.bucket_key(worker=worker)
    words.append(codec.encode([tf.constant(gradient)], None, shared_probe, key))
    alone = codec.decode_sum([words[-1][tf.newaxis]], shared_probe, [(5000,)])
    each.append(alone[0].numpy())
  parts = [tf.stack(words[::2]), tf.stack(words[1::2])]
  (total,) = codec.decode_sum(parts, shared_probe, [(5000,)])
  np.testing.assert_allclose(total, sum(each), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_element_that_is_not_finite_shows_in_the_probe(value):
  gradient = np.ones(5000, np.float32)
  gradient[4321] = value
  assert not np.isfinite(eden.eden3().probe([tf.constant(gradient)])[0])


@pytest.mark.parametrize(
  ('index', 'word', 'message'),
  [
    (2, np.float32(-1).view(np.int32), 'expected finite scales >= 0'),
    (2, np.float32(np.nan).view(np.int32), 'expected finite scales >= 0'),
    (2, np.float32(1e36).view(np.int32), 'expected scales of a gradient no la'),
    (3, np.float32(3e4).view(np.int32), 'expected scales of a gradient no la'),
    (5, -1, 'base3: expected word'),
  ],
)
def test_damaged_payload_is_refused(index, word, message):
  words, _ = run(eden.eden3(), [rng().normal(size=5000)])
  words[index] = word
  with pytest.raises(ValueError, match=message):
    validation.validate(eden.eden3(), words, 5000)


# What makes the largest scales, in units of the probe.
EXTREMES = {
  'one element': lambda size: np.eye(1, size, size // 2)[0],
  'two elements': lambda size: (
    np.eye(1, size)[0] + 0.36 * np.eye(1, size, 1)[0]
  ),
  'equal': np.ones,
  'normal': lambda size: rng().normal(size=size),
  'heavy': lambda size: rng().standard_t(1, size=size),
  'zeros': np.zeros,
}


def in_all(*values):
  return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.mark.parametrize('size', [1, 3, 100, 9000, *in_all(2, 5, 4096)])
@pytest.mark.parametrize('factor', [1.9999, 1e36, 1e-42, *in_all(1.0, 1e-38)])
@pytest.mark.gate_every(3)
def test_every_payload_of_the_encoder_is_valid(size, factor):
  for make in EXTREMES.values():
    values = make(size)
    values = values / np.max([1e-9, np.abs(values).max()]) * factor
    words, _ = run(eden.eden3(), [values.astype(np.float32)])
    validation.validate(eden.eden3(), words, size)


@pytest.mark.parametrize('fired', [1, 64, 4096])
def test_valid_payloads_decode_to_at_most_40_times_the_probe(fired):
  """To less than 40 times its root mean square; it had no bound."""
  size, width = 4096, packing.base3().width(4096)
  codes = (np.arange(20 * width) < fired).astype(np.int32).reshape(20, -1)
  packed = packing.base3().pack(list(tf.constant(codes))).numpy()
  for scale in 2.0 ** np.arange(30, -10, -0.25):
    head = [0, 0, np.float32(scale).view(np.int32)]
    words = np.concatenate([head, packed]).astype(np.int32)
    try:
      validation.validate(eden.eden3(), words, size)
      break
    except ValueError:
      continue
  one = tf.ones([1])
  (decoded,) = eden.eden3().decode_sum([words[np.newaxis]], one, [(size,)])
  assert 1 < np.sqrt(np.mean(decoded**2)) < 40


# As the docstring says: where few elements hold all, rotations are few too.
@pytest.mark.parametrize(
  ('values', 'largest'),
  [
    ([1.0, 0.36], 0.24),
    (rng().normal(size=10), 0.02),
    pytest.param([1.0, 0.36] + [0.0] * 510, 0.24, marks=pytest.mark.slow),
    pytest.param(rng().normal(size=100), 0.004, marks=pytest.mark.slow),
  ],
  ids=lambda values: str(len(values)) if np.ndim(values) else None,
)
@pytest.mark.gate_every(2)
def test_bias_is_bounded_for_few_elements(values, largest):
  values = np.array(values, np.float32)
  sample = conformance.sampler(eden.eden3(), values.size, draws=1000)
  local_probe = conformance.probe(eden.eden3(), values).numpy()
  assert error(sample(values, local_probe, local_probe).mean, values) < largest


@pytest.mark.parametrize('bits', [2, 3, 4])
def test_levels_are_the_centroids_between_borders_to_a_64th(bits):
  values, borders = lloyd_max.LEVELS_BY_BITS[bits][1:3]
  ends = np.array([0.0, *borders, np.inf])
  density = np.exp(-(ends**2) / 2) / math.sqrt(2 * math.pi)
  below = np.array([math.erf(end / math.sqrt(2)) for end in ends]) / 2
  centroids = (density[:-1] - density[1:]) / np.diff(below)
  # Max's table has four digits, of levels and of borders.
  assert np.abs(np.array(values) / 64 - centroids).max() < 1 / 128 + 0.001
  middles = (centroids[:-1] + centroids[1:]) / 2
  assert np.abs(middles - borders).max() < 0.001
