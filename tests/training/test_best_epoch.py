"""Which epoch is the best, and when none was better for long enough."""

import pytest

from terngrad.training import best_epoch


def judged(wanted, patience, values, before=()):
  """(is_new, is_over) after each epoch."""
  name = {'accuracy': 'precision_at_1', 'loss': 'loss'}[wanted]
  best = best_epoch.BestEpoch(
    wanted,
    'test',
    patience,
    [
      {'step': 1, 'loss': 0.0},
      *({'step': 2, 'epoch': 1, f'test_{name}': value} for value in before),
    ],
  )
  found = []
  for value in values:
    best.add({'step': 3, f'test_{name}': value})
    found.append((best.is_new, best.is_over))
  return found


def test_a_higher_accuracy_and_a_lower_loss_are_better():
  values = [0.5, 0.6, 0.4]
  assert [new for new, _ in judged('accuracy', 0, values)] == [
    True,
    True,
    False,
  ]
  assert [new for new, _ in judged('loss', 0, values)] == [True, False, True]


def test_an_equal_score_is_not_better():
  assert judged('loss', 0, [0.5, 0.5]) == [(True, False), (False, False)]


def test_a_run_is_over_after_so_many_epochs_without_a_better_one():
  over = [over for _, over in judged('loss', 2, [3.0, 4.0, 2.0, 2.0, 2.0])]
  assert over == [False, False, False, False, True]


def test_without_patience_no_run_is_over():
  assert not any(over for _, over in judged('loss', 0, [1.0] * 99))


@pytest.mark.parametrize('value', [float('nan'), None])
def test_a_score_that_is_not_finite_is_never_the_best(value):
  assert judged('loss', 3, [value, 5.0, value]) == [
    (False, False),
    (True, False),
    (False, False),
  ]


def test_epochs_in_the_records_count():
  assert judged('accuracy', 2, [0.4], before=[0.5, 0.3]) == [(False, True)]
  assert judged('accuracy', 2, [0.6], before=[0.5, 0.3]) == [(True, False)]


def test_epochs_without_this_score_do_not_count():
  """A run may get its first --eval_subsets after many epochs."""
  records = [{'step': i, 'epoch': i, 'accuracy': 0.5} for i in range(1, 9)]
  best = best_epoch.BestEpoch('loss', 'test', 3, records)
  assert (best.step, best.is_over) == (0, False)
