"""What variants need to reach a score, against numbers by hand."""

import math

import pandas as pd
import pytest

from terngrad.report.targets import plot
from terngrad.report.targets import scores
from terngrad.report.targets import table

LOSS = scores.SCORES['loss']
CURVES = {
  ('float32', 1): [(10, 4.0), (20, 2.0)],
  ('float32', 2): [(10, 4.0), (20, 3.0)],
  ('ternary', 1): [(10, 4.0), (20, 2.5)],
  ('ternary', 2): [(10, 4.0), (20, 3.5)],
  ('once', 1): [(10, 5.0), (20, 4.0)],
}
VARIANTS = {
  'float32': table.Variant(2.0, {'slow': 0.5}),
  'ternary': table.Variant(0.1, {'slow': 0.25}),
  'once': table.Variant(0.01, {'slow': 0.125}),
}


@pytest.fixture(scope='module')
def reached():
  return table.until(CURVES, VARIANTS, [3.0, 3.5], LOSS).set_index(
    ['loss', 'variant']
  )


def test_steps_bytes_and_seconds_are_means_over_the_seeds(reached):
  # Steps 15 and 20.
  found = reached.loc[3.0, 'float32']
  assert found[table.STEPS] == 17.5
  assert found[table.MEGABYTES] == 35
  assert found['slow'] == 8.75
  assert found['reached'] == '2 of 2'
  # t for one degree of freedom times the deviation over the root of 2.
  assert found['95 %'] == pytest.approx(12.71 * 2.5)


def test_a_variant_of_which_a_seed_fails_has_no_mean(reached):
  found = reached.loc[3.0, 'ternary']
  assert found['reached'] == '1 of 2'
  assert math.isnan(found[table.STEPS]) and math.isnan(found['slow'])
  assert reached.loc[3.0, 'once']['reached'] == '0 of 1'


def test_the_fewest_bytes_come_first_and_unreached_targets_last(reached):
  assert list(reached.loc[3.0].index) == ['float32', 'ternary', 'once']
  assert list(reached.loc[3.5].index) == ['ternary', 'float32', 'once']


def test_last_scores_are_compared_by_seed():
  baselines = dict.fromkeys(VARIANTS, 'float32')
  found = table.at_the_end(CURVES, baselines, LOSS).set_index('variant')
  assert list(found.index) == ['float32', 'ternary', 'once']
  assert found.loc['ternary', 'loss'] == 3.0
  assert found.loc['ternary', 'to float32'] == 0.5
  assert found.loc['once', 'to float32'] == 2.0
  assert list(found['seeds']) == [2, 2, 1]


def test_runs_that_are_not_finite_at_the_end_are_left_out():
  curves = {('a', 1): [(1, math.nan)], ('b', 1): [(1, 2.0)]}
  found = table.at_the_end(curves, {'a': 'b', 'b': 'b'}, LOSS)
  assert list(found['variant']) == ['b']
  assert table.at_the_end({('a', 1): [(1, math.nan)]}, {}, LOSS).empty


@pytest.mark.parametrize('points', [[], [(20, math.nan)]])
def test_variants_that_lost_a_run_are_not_compared(points):
  curves = {**CURVES, ('ternary', 3): points}
  baselines = {'ternary': 'float32', 'once': 'ternary', 'float32': 'float32'}
  found = table.at_the_end(curves, baselines, LOSS).set_index('variant')
  assert found.loc['ternary', 'failed'] == 1
  assert found.loc['ternary', 'loss'] == 3.0
  assert found.loc[['ternary', 'once'], 'to float32'].isna().all()


def test_a_line_is_the_mean_over_seeds_and_single_seeds_are_marked():
  drawn = plot.chart(CURVES, VARIANTS, LOSS)
  assert [axes.get_xlabel() for axes in drawn.axes] == [table.MEGABYTES, 'slow']
  lines = {line.get_label(): line for line in drawn.axes[0].lines}
  assert [*lines] == ['float32', 'ternary', 'once (one seed)']
  assert list(lines['float32'].get_xdata()) == [20, 40]
  assert list(lines['float32'].get_ydata()) == [4.0, 2.5]
  assert lines['once (one seed)'].get_markerfacecolor() == 'none'


def test_epochs_that_a_seed_lacks_are_not_drawn_as_a_mean():
  curves = {**CURVES, ('ternary', 1): [(10, 4.0)]}
  drawn = plot.chart(curves, VARIANTS, LOSS)
  ternary = drawn.axes[0].lines[1].get_ydata()
  pd.testing.assert_series_equal(
    pd.Series(ternary), pd.Series([4.0, math.nan]), check_dtype=False
  )


def test_names_with_dollars_are_no_formulas_in_the_legend():
  points = [(10, 4.0), (20, 2.0)]
  variants = {'é$x^$': table.Variant(2.0, {})}
  plot.chart({('é$x^$', 1): points}, variants, LOSS).draw_without_rendering()
