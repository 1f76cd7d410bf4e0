"""Confidence intervals of test sets, and their sizes from accuracies."""

import math
import random

import pytest

from terngrad.report.statistics import intervals


def test_sampling_error_is_that_of_the_binomial_distribution():
  found = intervals.sampling_error(0.99, 10_000)
  assert found == pytest.approx(1.96 * math.sqrt(0.99 * 0.01 / 10_000), 1e-4)
  assert intervals.sampling_error(1.0, 500) == 0


@pytest.mark.parametrize('size', [500, 10_000, 50_000])
def test_the_size_of_the_test_set_is_found(size):
  draw = random.Random(1)
  right = [draw.randint(size // 2, size) for _ in range(30)]
  assert intervals.count_examples([n / size for n in right]) == size


@pytest.mark.parametrize(
  'accuracies', [[], [0.5], [0.5, 0.75], [math.pi / 4], [1.5], [-0.1], [0, 1]]
)
def test_numbers_that_reveal_no_size_give_none(accuracies):
  assert intervals.count_examples(accuracies) is None


def test_nan_reveals_no_size():
  assert intervals.count_examples([math.nan, 0.9893]) is None
