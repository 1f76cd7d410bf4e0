"""Axes of small plots, for any numbers."""

import itertools
import math

import pytest

from terngrad.report.pages import line_plot
from terngrad.report.pages import scales

HARD = (0, 1, -1, 1e-300, 5e-324, 1e300, -1e300, 30, 1 + 2e-16, 1e15, 1e15 + 1)


@pytest.mark.parametrize('logarithmic', [False, True])
@pytest.mark.parametrize(
  'values', [*itertools.combinations_with_replacement(HARD, 2)]
)
def test_all_values_are_on_the_axis_and_ticks_are_few(values, logarithmic):
  scale = scales.fit(values, 10, 300, logarithmic)
  for value in values:
    assert 10 <= scale.place(value) <= 300
  ticks = scale.ticks()
  assert len(ticks) <= 12
  assert all(10 <= scale.place(tick) <= 300 for tick in ticks)


def test_ticks_are_round_numbers():
  assert scales.fit([0, 1000], 0, 1).ticks() == [0, 250, 500, 750, 1000]
  assert scales.fit([0.002, 3], 0, 1, True).ticks() == [0.01, 0.1, 1]
  # Within a decade a logarithmic axis has other numbers than powers.
  assert scales.fit([1.2, 8], 0, 1, True).ticks() == [2, 5]
  assert [scales.label(v) for v in (0.25, 12500, 1e9, 1e-7)] == [
    '0.25',
    '12,500',
    '1e+09',
    '1e-07',
  ]


def test_logarithmic_places_are_equal_for_equal_factors():
  scale = scales.fit([1, 100], 0, 100, True)
  low, middle, high = map(scale.place, (1, 10, 100))
  assert middle - low == pytest.approx(high - middle)
  assert not scales.fit([0, 100], 0, 100, True).logarithmic


def test_long_curves_are_means_of_consecutive_points():
  points = [(n, float(n % 2)) for n in range(1, 101)]
  thinned, size = line_plot.thin(points, 30)
  assert size == 4 and len(thinned) == 25
  assert thinned[0] == (4, 0.5) and thinned[-1] == (100, 0.5)
  assert line_plot.thin(points, 100) == (points, 1)
  assert all(math.isfinite(value) for _, value in thinned)
