"""Codes of groups against their papers' formulas, element by element."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.codec.stages import random_bits
from tests.codec import conformance

SIZE, GROUP = 1003, 100


def values_of(size=SIZE):
  return conformance.rng().standard_t(3, size=size).astype(np.float32)


def draws(bits):
  """float64 [SIZE] in [0, 1): the upper bits of each element's draw."""
  positions = tf.bitcast(tf.range(SIZE), tf.uint32)
  drawn = random_bits.element_bits(conformance.bucket_key(), positions).numpy()
  return (drawn >> np.uint32(32 - bits)) / 2.0**bits


def decoded(text, values):
  return conformance.round_trip(registry.parse(text), values)


def groups(values):
  return [values[i : i + GROUP] for i in range(0, len(values), GROUP)]


def check_same(actual, expected, step):
  """Fails unless all but ties are equal; a tie is a step away."""
  differ = np.flatnonzero(actual != expected)
  assert len(differ) <= 1
  np.testing.assert_allclose(actual, expected, rtol=0, atol=1.001 * step)


@pytest.mark.parametrize('norm', ['l2', 'max'])
@pytest.mark.parametrize('levels', [1, 7, 255])
def test_qsgd_rounds_fractions_of_the_norm_as_in_equation_4(levels, norm):
  values = values_of()
  actual = decoded(
    f'qsgd:levels={levels},group_size={GROUP},norm={norm}', values
  )
  for own, group, draw in zip(
    groups(actual), groups(values), groups(draws(22)), strict=True
  ):
    wide = np.abs(group.astype(np.float64))
    length = np.sqrt(np.sum(wide**2)) if norm == 'l2' else wide.max()
    step = own[own != 0]
    step = length / levels
    level = np.floor(wide / step + draw)
    expected = np.sign(group) * level * step
    # The step has 16 bits, rounded up.
    differ = np.abs(own - expected) > 2.0**-14 * np.abs(expected)
    assert np.count_nonzero(differ) <= 1 + levels / 50
    assert np.max(np.abs(own - expected)) <= 1.01 * step


@pytest.mark.parametrize('bits', [1, 2, 4, 8])
def test_minmax_rounds_between_the_least_and_the_largest(bits):
  values = values_of()
  actual = decoded(f'minmax:bits={bits},group_size={GROUP}', values)
  for own, group, draw in zip(
    groups(actual), groups(values), groups(draws(22)), strict=True
  ):
    wide = group.astype(np.float64)
    step = (wide.max() - wide.min()) / (2**bits - 1)
    level = np.floor((wide - wide.min()) / step + draw)
    expected = wide.min() + level * step
    differ = np.abs(own - expected) > 2.0**-14 * (wide.max() - wide.min())
    assert np.count_nonzero(differ) <= 1 + 2**bits / 50
    assert np.max(np.abs(own - expected)) <= 1.01 * step
    # The ends are themselves, but for the rounding up of the step.
    assert own.min() >= group.min()


def test_minmax_encodes_both_zeros_alike():
  values = np.array([-0.0, 1, 2, 3], np.float32)
  words, _ = conformance.encode(registry.parse('minmax'), values)
  positive, _ = conformance.encode(registry.parse('minmax'), np.abs(values))
  np.testing.assert_array_equal(words, positive)


def test_one_bit_decodes_to_the_mean_of_each_sign():
  values = values_of()
  actual = decoded(f'one_bit:group_size={GROUP}', values)
  for own, group in zip(groups(actual), groups(values), strict=True):
    wide = group.astype(np.float64)
    up, down = wide[wide >= 0].mean(), wide[wide < 0].mean()
    np.testing.assert_allclose(own, np.where(wide < 0, down, up), rtol=2**-23)


def test_one_bit_encodes_both_zeros_as_positive():
  values = np.array([-0.0, 1, 2, -3, 0], np.float32)
  np.testing.assert_array_equal(
    decoded('one_bit', values), [0.75] * 3 + [-3, 0.75]
  )


def test_one_bit_of_positive_elements_decodes_to_their_mean():
  actual = decoded('one_bit', np.array([1, 2, 3], np.float32))
  np.testing.assert_array_equal(actual, [2, 2, 2])


def test_asymmetric_rounds_each_sign_with_a_separate_scaler():
  values = np.where(values_of() < 0, values_of(), 10 * values_of())
  values = values.astype(np.float32)
  actual = decoded(f'asymmetric:clip_factor=0,group_size={GROUP}', values)
  for own, group, draw in zip(
    groups(actual), groups(values), groups(draws(23)), strict=True
  ):
    scaler = np.where(group < 0, -group.min(), group.max())
    fires = draw + 2.0**-24 <= np.abs(group.astype(np.float64)) / scaler
    expected = np.where(fires, np.sign(group) * scaler, 0)
    check_same(own, expected.astype(np.float32), scaler.max())


def test_asymmetric_clips_at_clip_factor_deviations():
  values = values_of()
  actual = decoded('asymmetric:clip_factor=1.5', values)
  limit = 1.5 * values.astype(np.float64).std()
  np.testing.assert_allclose(np.abs(actual).max(), limit, rtol=2.0**-22)


def test_natural_rounds_to_the_adjacent_powers_of_two():
  values = values_of()
  values[:3] = 0.0, -4.0, 2.0**-126
  actual = decoded('natural', values).astype(np.float64)
  wide = np.abs(values.astype(np.float64))
  below = 2.0 ** np.floor(np.log2(np.maximum(wide, 2.0**-126)))
  up = draws(23) < np.maximum(wide / below - 1, 0)
  expected = np.sign(values) * np.where(up, 2 * below, below)
  np.testing.assert_array_equal(actual, expected)


def test_natural_never_rounds_up_to_infinity():
  values = np.full(64, 3.4e38, np.float32)
  assert set(decoded('natural', values)) == {np.float32(2.0**127)}


def patterns():
  """float32 of all signs, exponents and seven bits, ties and beside them."""
  upper = np.arange(2**16, dtype=np.uint32) << 16
  bits = np.concatenate([upper, upper | 0x8000, upper | 0x8001, upper | 0x7FFF])
  values = bits.view(np.float32)
  return values[np.isfinite(values)]


def test_bf16_rounds_as_ml_dtypes_does():
  values = patterns()
  expected = values.astype(ml_dtypes.bfloat16)
  largest = ml_dtypes.finfo(ml_dtypes.bfloat16).max
  expected = np.where(
    np.isfinite(expected.astype(np.float32)),
    expected.astype(np.float32),
    np.copysign(np.float32(largest), values),
  )
  actual = decoded('bf16', values)
  np.testing.assert_array_equal(actual.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize(
  ('kind', 'dtype'),
  [('e4m3', ml_dtypes.float8_e4m3fn), ('e5m2', ml_dtypes.float8_e5m2)],
)
def test_fp8_rounds_as_ml_dtypes_does(kind, dtype):
  largest = float(ml_dtypes.finfo(dtype).max)
  # With the largest among them the scale is 1, and below it a power of two.
  values = patterns()
  values = values[np.abs(values) < largest]
  for scale in (1.0, 2.0**-40):
    scaled = np.append(values, np.float32(largest)) * np.float32(scale)
    scaled = scaled[(scaled == 0) | (np.abs(scaled) > 2.0**-100)]
    # Exact: a division by a power of two.
    expected = (scaled / np.float32(scale)).astype(dtype).astype(np.float32)
    actual = decoded(f'fp8:kind={kind},group_size=0', scaled)
    np.testing.assert_array_equal(actual, expected * np.float32(scale))


@pytest.mark.parametrize('kind', ['e4m3', 'e5m2'])
def test_fp8_preserves_values_near_the_least_normal_number(kind):
  # A scale of their own would be too small to divide by; the least is 2**-120.
  values = np.array([3e-38, -4e-38, 0, 1e-37], np.float32)
  actual = decoded(f'fp8:kind={kind}', values)
  np.testing.assert_allclose(actual, values, rtol=2.0**-3)


@pytest.mark.parametrize(
  ('text', 'index', 'word', 'message'),
  [
    ('qsgd', 0, np.float32(-1).view(np.int32), 'expected finite scales >= 0'),
    ('qsgd', 5, -1, r'digits\(7\): expected'),
    ('minmax:bits=4', 0, np.float32(np.nan).view(np.int32), 'finite scales, '),
    ('one_bit', 1, np.float32(np.inf).view(np.int32), 'finite scales >= 0'),
    ('fp8', 0, np.float32(-2).view(np.int32), 'expected finite scales >= 0'),
    ('natural', 0, -1, 'expected exponents of at most 254'),
    ('natural', -1, -1, r'unsigned\(1\): expected code 0 past the last'),
  ],
)
def test_damaged_payload_is_refused(text, index, word, message):
  codec = registry.parse(text)
  conformance.check_corruption_is_refused(
    codec, values_of(70), index, word, message
  )


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('qsgd:levels=0', 'levels from 1 to 255 .* received 0'),
    ('qsgd:levels=256', 'levels from 1 to 255 .* received 256'),
    ('qsgd:norm=l1', "norm l2 or max, received 7 and 'l1'"),
    ('qsgd:group_size=-1', 'group_size: expected a number of elements, or 0'),
    ('minmax:group_size=3000000000', 'at most 2147483647, received 3000000000'),
    ('minmax:bits=3', 'expected 1, 2, 4 or 8 bits, received 3'),
    ('fp8:kind=e3m4', "expected one of e4m3, e5m2, received 'e3m4'"),
    ('eden:bits=5', 'expected 1, 2, 3 or 4 bits, received 5'),
    ('three_lc:sparsity=2', 'sparsity from 1 to below 2, received 2.0'),
    ('threshold:above=-1', 'expected above to be finite and >= 0'),
    ('threshold:capacity=0', 'expected capacity above 0 and at most 1'),
    ('asymmetric:clip_factor=-1', '>= 0, received -1.0'),
  ],
)
def test_options_out_of_range_are_refused(text, message):
  with pytest.raises(ValueError, match=message):
    registry.parse(text)
