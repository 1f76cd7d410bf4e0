"""Pooled intervals and Dunnett's p-values against SciPy's and tables."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from terngrad.report.statistics import intervals
from terngrad.report.statistics import paired


def drawn(seeds, variants, spread=0.1):
  generator = np.random.default_rng(7)
  values = 90 + generator.normal(0, spread, (seeds, variants))
  values += generator.normal(0, 1, (seeds, 1))
  names = ['float32', *(f'v{i}' for i in range(1, variants))]
  return pd.DataFrame(values, columns=names)


def against(accuracy):
  return dict.fromkeys(accuracy, 'float32')


def test_p_values_of_independent_groups_are_those_of_scipy():
  accuracy = drawn(4, 5)
  groups = [accuracy[name] for name in accuracy]
  control, *others = groups
  expected = stats.dunnett(*others, control=control).pvalue
  deviation = math.sqrt(np.mean([group.var(ddof=1) for group in groups]))
  ratios = [
    (group.mean() - control.mean()) / (deviation * math.sqrt(2 / 4))
    for group in others
  ]
  correlation = np.full((4, 4), 0.5) + np.eye(4) / 2
  found = paired.p_values(ratios, correlation, 5 * 3)
  assert found == pytest.approx(expected, abs=0.002)


# Dunnett, New tables for multiple comparisons with a control, Biometrics 20
# (1964): two-sided, 5 %, by variants and degrees of freedom.
@pytest.mark.parametrize(
  ('variants', 'degrees', 'ratio'),
  [(1, 20, 2.09), (2, 20, 2.38), (3, 20, 2.54), (2, 10, 2.57)],
)
def test_critical_ratios_are_those_of_dunnetts_tables(variants, degrees, ratio):
  correlation = np.full((variants, variants), 0.5) + np.eye(variants) / 2
  found = paired.p_values([-ratio] * variants, correlation, degrees)
  assert found == pytest.approx([0.05] * variants, abs=0.002)


def test_one_variant_has_the_interval_and_p_of_scipys_paired_test():
  accuracy = drawn(5, 2)
  row = paired.compare(accuracy, against(accuracy))['v1']
  expected = stats.ttest_rel(accuracy['v1'], accuracy['float32'])
  assert row['Dunnett p'] == pytest.approx(expected.pvalue, abs=0.0005)
  low, high = expected.confidence_interval()
  assert row['pooled 95 %'] == pytest.approx((high - low) / 2)
  at_99 = paired.compare(accuracy, against(accuracy), 99)['v1']
  low, high = expected.confidence_interval(0.99)
  assert at_99['pooled 99 %'] == pytest.approx((high - low) / 2)
  low, high = expected.confidence_interval()
  # The quantile of one variant has four digits.
  assert row['its 95 %'] == pytest.approx((high - low) / 2, rel=5e-4)


def test_the_pooled_deviation_is_the_residual_of_variants_and_seeds():
  accuracy = drawn(3, 6)
  values = accuracy.to_numpy()
  residuals = (
    values
    - values.mean(axis=0)
    - values.mean(axis=1, keepdims=True)
    + values.mean()
  )
  deviation, degrees = paired.difference_deviation(accuracy)
  assert degrees == 10
  assert deviation == pytest.approx(math.sqrt(2 * (residuals**2).sum() / 10))
  row = paired.compare(accuracy, against(accuracy))['v3']
  half = stats.t.ppf(0.975, 10) * deviation / math.sqrt(3)
  assert row['pooled 95 %'] == pytest.approx(half)


def test_an_effect_of_seeds_on_all_variants_changes_nothing():
  accuracy = drawn(3, 4)
  other = accuracy.add([5.0, -3.0, 1.0], axis=0)
  assert paired.compare(accuracy, against(accuracy)) == paired.compare(
    other, against(other)
  )


def test_missing_seeds_add_no_degrees_and_widen_the_interval():
  accuracy = drawn(3, 4)
  accuracy.loc[1:, 'v1'] = math.nan
  found = paired.compare(accuracy, against(accuracy))
  assert paired.difference_deviation(accuracy)[1] == 4
  assert math.isnan(found['v1']['its 95 %'])
  ratio = found['v1']['pooled 95 %'] / found['v2']['pooled 95 %']
  assert ratio == pytest.approx(math.sqrt(3))


def test_one_seed_has_neither_an_interval_nor_a_p_value():
  accuracy = drawn(1, 3)
  row = paired.compare(accuracy, against(accuracy))['v1']
  assert math.isnan(row['pooled 95 %']) and math.isnan(row['Dunnett p'])
  assert row['to float32'] == pytest.approx(
    accuracy['v1'][0] - accuracy['float32'][0]
  )


def test_a_baseline_is_not_compared_with_itself():
  accuracy = drawn(3, 3)
  row = paired.compare(accuracy, against(accuracy))['float32']
  assert row['to float32'] == 0
  assert math.isnan(row['pooled 95 %']) and math.isnan(row['Dunnett p'])


def test_equal_accuracies_have_no_p_value():
  accuracy = drawn(3, 3) * 0 + 90
  row = paired.compare(accuracy, against(accuracy))['v1']
  assert row['pooled 95 %'] == 0 and math.isnan(row['Dunnett p'])


def test_quantiles_of_students_t_are_those_of_scipy():
  for degrees in range(1, 200):
    values = pd.Series(range(degrees + 1)) * 1.0
    _, deviation, half = intervals.interval(values)
    quantile = half * math.sqrt(degrees + 1) / deviation
    expected = stats.t.ppf(0.975, degrees)
    assert quantile == pytest.approx(expected, rel=6e-4)
