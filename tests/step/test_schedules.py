import math

import pytest

from terngrad.config import optimizer
from terngrad.step import schedules


def decaying(**options):
  return optimizer.OptimizerOptions(initial_learning_rate=0.1, **options)


@pytest.mark.parametrize(
  ('batch', 'drop'), [(256, 100091), (512, 50045), (1024, 25022)]
)
def test_exponential_decay_drops_where_the_2017_code_did(batch, drop):
  before, after = (
    schedules.learning_rate(decaying(), step, 1281167 / batch, 10**6)
    for step in (drop - 1, drop)
  )
  assert before == 0.1
  assert after == pytest.approx(0.01)


@pytest.mark.parametrize(
  ('step', 'expected'), [(0, 0.1), (750, 0.05), (1000, 0.0), (2000, 0.0)]
)
def test_polynomial_decay_falls_as_the_root_to_zero(step, expected):
  there = decaying(learning_rate_decay_type='polynomial')
  received = schedules.learning_rate(there, step, 1, 1000)
  assert received == pytest.approx(expected)


@pytest.mark.parametrize('kind', schedules.DECAY_TYPES)
def test_adam_has_a_fixed_learning_rate_by_default(kind):
  there = decaying(optimizer='adam', learning_rate_decay_type=kind)
  assert schedules.learning_rate(there, 10**9, 1, 1000) == 0.1


def test_decay_adam_decays_the_learning_rate_of_adam():
  there = decaying(optimizer='adam', decay_adam=True)
  assert schedules.learning_rate(there, 10**9, 1, 1000) < 0.1


@pytest.mark.parametrize(
  ('step', 'expected'), [(0, 0.1), (10, 0.06), (20, 0.02), (30, 0.02)]
)
def test_linear_decay_reaches_end_learning_rate_after_its_epochs(
  step, expected
):
  # 10 steps an epoch.
  there = decaying(
    learning_rate_decay_type='linear',
    end_learning_rate=0.02,
    num_epochs_per_decay=2.0,
  )
  received = schedules.learning_rate(there, step, 10, 1000)
  assert received == pytest.approx(expected)


@pytest.mark.parametrize('kind', ['exponential', 'linear'])
def test_a_decay_after_more_epochs_than_a_run_has_changes_nothing(kind):
  never = decaying(learning_rate_decay_type=kind, num_epochs_per_decay=1e308)
  for step in (0, 10**9):
    rate = schedules.learning_rate(never, step, 100.0, 10**9)
    assert rate == pytest.approx(0.1)


def test_a_rate_that_grows_without_end_is_infinite_and_no_error():
  grows = decaying(learning_rate_decay_factor=10.0, num_epochs_per_decay=0)
  assert schedules.learning_rate(grows, 2, 1.0, 1000) == pytest.approx(10.0)
  assert schedules.learning_rate(grows, 400, 1.0, 1000) == math.inf


def test_step_counts_beyond_float32_still_move_the_schedule():
  # B5: a float32 step stopped at 2**24.
  there = decaying(learning_rate_decay_type='polynomial')
  rates = [
    schedules.learning_rate(there, 2**24 + extra, 1, 2**25 + 2)
    for extra in (0, 1, 2)
  ]
  assert rates[0] > rates[1] > rates[2]


def test_an_epoch_shorter_than_a_batch_still_decays():
  there = decaying(num_epochs_per_decay=0.001)
  assert schedules.learning_rate(there, 3, 0.04, 1000) == pytest.approx(1e-4)


@pytest.mark.parametrize(
  ('step', 'expected'), [(0, 0.1), (9, 10 / 19), (10**7, 0.9999)]
)
def test_averaging_decay_grows_to_its_limit(step, expected):
  assert schedules.averaging_decay(step) == pytest.approx(expected)
  assert schedules.averaging_decay(step, 0.2) == min(expected, 0.2)


@pytest.mark.parametrize(
  ('cycle', 'float_epochs'),
  [(0, []), (1, [0, 1, 2, 3, 4, 5]), (2, [1, 3, 5]), (3, [2, 5])],
)
def test_the_last_epoch_of_each_cycle_uses_float_gradients(cycle, float_epochs):
  # B1: the flag did nothing. 10 examples an epoch, 5 a step.
  chosen = [
    step // 2
    for step in range(12)
    if schedules.uses_float_gradients(cycle, step, 5, 10)
  ]
  assert sorted(set(chosen)) == float_epochs


@pytest.mark.parametrize(
  ('num_examples', 'batch_size'), [(90, 8), (64, 64), (64, 16), (7, 3)]
)
def test_each_epoch_ends_once_in_the_step_that_takes_its_last_example(
  num_examples, batch_size
):
  epochs = schedules.Epochs(num_examples, batch_size)
  ends = {}
  seen = 0
  for step in range(1, 200):
    seen += batch_size
    epoch = epochs.ending_epoch(step)
    # The last example of epoch e is the e * num_examples-th of all.
    assert (epoch is not None) == (seen % num_examples < batch_size)
    if epoch:
      ends[epoch] = step
      assert seen - batch_size < epoch * num_examples <= seen
  assert list(ends) == list(range(1, len(ends) + 1))
  assert {e: epochs.steps(e) for e in ends} == ends


def test_if_several_epochs_end_in_a_step_the_last_is_returned():
  epochs = schedules.Epochs(num_examples=10, batch_size=25)
  assert [epochs.ending_epoch(step) for step in (1, 2, 3, 4)] == [2, 5, 7, 10]
  assert epochs.steps(5) == 2


@pytest.mark.parametrize(
  ('num_examples', 'batch_size'), [(90, 8), (64, 16), (7, 3), (10, 25)]
)
def test_a_step_has_a_number_in_its_epoch(num_examples, batch_size):
  epochs = schedules.Epochs(num_examples, batch_size)
  ends = [step for step in range(1, 60) if epochs.ending_epoch(step)]
  first = 1
  for end in ends:
    found = [epochs.epoch_at(step) for step in range(first, end + 1)]
    count = end + 1 - first
    assert len({epoch.number for epoch in found}) == 1
    assert [p.step for p in found] == list(range(1, count + 1))
    assert {p.num_steps for p in found} == {count}
    # It ends its own epoch; a batch of several ends later ones too.
    assert found[-1].number <= epochs.ending_epoch(end)
    first = end + 1
