"""4-bit floats against their description, element by element."""

import numpy as np
import pytest

from terngrad.codec.methods import registry
from tests.codec import conformance
from tests.codec import rounds


def reference(values):
  """One group: float64, from the description of the format."""
  span = np.abs(values).max()
  top = 2.0 ** np.floor(np.log2(span))
  scale = top if span <= 1.5 * top else 2 * top
  grid = np.r_[0, scale * 2.0 ** np.arange(-6.0, 1)]
  found = []
  for value in np.abs(values):
    distance = np.abs(grid - value)
    nearest = np.flatnonzero(distance == distance.min())
    # Of two the even code: 0 is 0, 1 to 7 are the powers.
    found.append(
      grid[nearest[nearest % 2 == 0][0] if len(nearest) > 1 else nearest[0]]
    )
  return np.sign(values) * found


@pytest.mark.parametrize('group', [64, 100])
def test_elements_become_the_nearest_of_eight_magnitudes(group):
  values = conformance.rng().standard_t(3, size=331).astype(np.float32)
  values[:6] = [48, 1.5, 0.5, 0.499, 0.501, 3]
  actual = conformance.round_trip(
    registry.parse(f'e3m0:group_size={group}'), values
  )
  wide = values.astype(np.float64)
  parts = [wide[i : i + group] for i in range(0, len(wide), group)]
  np.testing.assert_array_equal(
    actual, np.concatenate([*map(reference, parts)])
  )


@pytest.mark.parametrize(
  ('value', 'expected'),
  [
    *((1.0, 1.0), (1.5, 1.0), (1.51, 2.0), (2.0, 2.0), (-3.1, -4.0)),
    *((0.0, 0.0), (1e30, 2.0**100), (-1e-30, -(2.0**-100))),
  ],
)
def test_the_largest_magnitude_becomes_the_nearest_power_of_two(
  value, expected
):
  values = np.array([value, 0], np.float32)
  actual = conformance.round_trip(registry.parse('e3m0'), values)
  np.testing.assert_array_equal(actual, [expected, 0])


def test_a_payload_has_four_bits_an_element_and_a_scale_a_group():
  code = registry.parse('e3m0:group_size=512')
  assert code.num_words(1024) == 1024 * 4 // 32 + 2
  assert code.num_words(1025) == 129 + 3
  assert code.bits(1024, 4) == 4 * 1024 + 2 * 32 + 32


def test_workers_are_added_as_float32():
  codec = rounds.codec_of(registry.method('e3m0'), [(2,)])
  values = [[np.array([v, 64], np.float32)] for v in (64, 1, 1)]
  (mean,) = rounds.Workers(codec, 3).step(codec, values, 0)
  third = np.float32(1 / 3)
  np.testing.assert_array_equal(mean, [66 * third, 192 * third])


def test_a_scale_that_is_negative_is_refused():
  values = np.ones(5, np.float32)
  conformance.check_corruption_is_refused(
    registry.parse('e3m0'), values, 0, np.int32(-1), 'finite scales >= 0'
  )
