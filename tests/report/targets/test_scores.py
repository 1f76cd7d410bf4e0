"""Steps until a score, from points whose crossings are known."""

import math

import pandas as pd
import pytest

from terngrad import errors
from terngrad.report.targets import scores

LOSS, ACCURACY = scores.SCORES['loss'], scores.SCORES['accuracy']
FALLING = [(10, 4.0), (20, 2.0), (30, 1.0)]


@pytest.mark.parametrize(
  ('target', 'steps'),
  [(3.0, 15.0), (2.0, 20.0), (1.25, 27.5), (4.5, 10), (0.9, math.inf)],
)
def test_a_falling_score_is_linear_between_epochs(target, steps):
  assert scores.steps_until(FALLING, target, LOSS) == steps


def test_an_accuracy_is_reached_from_below():
  points = [(1, 0.5), (3, 0.7), (5, 0.6)]
  assert scores.steps_until(points, 0.6, ACCURACY) == pytest.approx(2)
  assert scores.steps_until(points, 0.8, ACCURACY) == math.inf


def test_the_first_time_counts_even_if_the_score_is_lost_again():
  points = [(1, 3.0), (2, 1.0), (3, 5.0)]
  assert scores.steps_until(points, 2.0, LOSS) == 1.5


def test_after_a_score_that_is_not_finite_the_epoch_counts():
  points = [(1, math.nan), (2, 1.0)]
  assert scores.steps_until(points, 2.0, LOSS) == 2
  assert scores.steps_until([(1, math.nan)], 2.0, LOSS) == math.inf


def test_curves_are_points_of_each_run_in_order_of_steps():
  rows = pd.DataFrame(
    [('a', 1, 20, 2.0), ('a', 1, 10, 4.0), ('a', 2, 10, 5.0)],
    columns=['variant', 'seed', 'step', 'loss'],
  )
  assert scores.curves_of(rows, LOSS) == {
    ('a', 1): [(10, 4.0), (20, 2.0)],
    ('a', 2): [(10, 5.0)],
  }


def test_a_score_that_no_run_has_is_refused_with_those_that_it_has():
  rows = pd.DataFrame({'variant': ['a'], 'seed': [1], 'accuracy': [0.5]})
  message = "such as accuracy, received 'loss'. Give --eval_subsets"
  with pytest.raises(errors.ConfigError, match=message):
    scores.curves_of(rows, LOSS)
  with pytest.raises(errors.ConfigError, match='such as none'):
    scores.curves_of(pd.DataFrame(), LOSS)
