import pytest

from terngrad.parameter_server import staleness
from terngrad.training import metrics


@pytest.mark.parametrize('late', [0, 1, 1000])
def test_without_a_bound_every_gradient_is_applied(late):
  assert staleness.Rule().applies(late)


@pytest.mark.parametrize(
  ('late', 'applied'), [(0, True), (2, True), (3, False)]
)
def test_a_gradient_later_than_the_bound_is_dropped(late, applied):
  assert staleness.Rule(bound=2).applies(late) is applied


def test_a_bound_of_zero_applies_only_gradients_that_are_not_stale():
  assert staleness.Rule(bound=0).applies(0)
  assert not staleness.Rule(bound=0).applies(1)


def test_the_learning_rate_is_divided_by_one_more_than_the_staleness():
  rule = staleness.Rule(scales=True)
  assert [rule.learning_rate(0.6, late) for late in (0, 1, 2)] == (
    pytest.approx([0.6, 0.3, 0.2])
  )
  assert staleness.Rule().learning_rate(0.6, 2) == 0.6


def test_a_tally_counts_gradients_since_the_last_record():
  tally = staleness.Tally()
  for late in (0, 3):
    tally.apply(late)
  tally.drop()
  assert tally.take() == metrics.Arrivals(staleness=[0, 3], dropped=1)
  tally.drop()
  assert tally.take() == metrics.Arrivals(staleness=[0], dropped=1)
