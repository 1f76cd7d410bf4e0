"""Slow works take fewer turns."""

import contextlib

import numpy as np
import pytest

from terngrad.measure import timing
from terngrad.measure import turns


class Clock:
  """A clock that works advance; one repetition of a work takes `seconds`."""

  def __init__(self, monkeypatch):
    self.now = 0.0
    self.calls = []
    monkeypatch.setattr(turns.time, 'perf_counter', lambda: self.now)

  def work(self, name, seconds):
    def repeatable(times):
      self.calls.append((name, times))
      self.now += seconds * times

    return repeatable


def test_a_fast_work_is_repeated_and_a_slow_one_is_timed_twice(monkeypatch):
  clock = Clock(monkeypatch)
  fast = turns.plan(clock.work('fast', 0.002), 100, 7)
  slow = turns.plan(clock.work('slow', 9.0), 100, 7)
  assert (fast.times, fast.rounds, fast.settles) == (50, 7, True)
  assert (slow.times, slow.rounds, slow.settles) == (1, 2, False)
  tiny = turns.plan(clock.work('tiny', 1e-6), 100, 7)
  assert tiny.times == 100


def test_works_take_turns_and_seconds_are_per_repetition(monkeypatch):
  clock, rounds = Clock(monkeypatch), []
  works = {
    'fast': turns.plan(clock.work('fast', 0.05), 2, 3),
    'slow': turns.plan(clock.work('slow', 5.0), 2, 3),
  }
  clock.calls.clear()
  seconds = turns.take(works, 3, lambda: rounds.append(len(clock.calls)))
  assert [name for name, _ in clock.calls] == (
    ['fast', 'fast', 'slow'] * 2 + ['fast', 'fast']
  )
  assert rounds == [3, 6, 8]
  np.testing.assert_allclose(seconds['fast'], [0.05] * 3)
  np.testing.assert_allclose(seconds['slow'], [5.0] * 2)


def test_after_the_end_no_round_begins_except_the_fewest(monkeypatch):
  clock, rounds = Clock(monkeypatch), []
  works = {'a': turns.plan(clock.work('a', 0.5), 1, 8)}
  begin = clock.now
  for end, expected in (begin, turns.FEWEST_ROUNDS), (begin + 1.75, 4):
    clock.now = begin
    seconds = turns.take(works, 8, lambda: rounds.append(1), end)
    assert seconds == {'a': [0.5] * expected}
  # A bar of all rounds still comes to its end.
  assert len(rounds) == 2 * 8


def test_a_repeatable_work_takes_the_number_of_repetitions():
  run = timing.repeatable(lambda i: [i + 1])
  assert [run(n) for n in (1, 2, 4)] == [1, 1 + 2, 1 + 2 + 3 + 4]


def take_piece(clock, budget, kind, size, fixed, growing):
  """Whether a piece fits; it takes these seconds if it does."""
  with contextlib.suppress(turns.OutOfBudgetError):
    with budget.piece(kind, size) as piece:
      clock.now += fixed
      piece.prepared([], growing)
      clock.now += growing
      return True
  return False


def test_the_first_piece_always_fits_and_others_need_seconds(monkeypatch):
  clock = Clock(monkeypatch)
  budget = turns.Budget(10)
  assert take_piece(clock, budget, 'native', 10, 11.0, 0.0)
  assert budget.left == -1
  assert not take_piece(clock, budget, 'native', 10, 0.0, 0.0)
  assert budget.left == -1


def test_what_grows_is_scaled_from_the_next_smaller_size(monkeypatch):
  clock = Clock(monkeypatch)
  budget = turns.Budget(100)
  take_piece(clock, budget, 'native', 10, 3.0, 0.0)
  # Compiling does not grow.
  assert take_piece(clock, budget, 'native', 10**6, 3.0, 2.0)
  # 3 + 20 of the 92 that are left, then 3 + 60 of 69.
  assert take_piece(clock, budget, 'native', 10**7, 3.0, 20.0)
  assert take_piece(clock, budget, 'native', 3 * 10**7, 0.0, 10.0)
  assert budget.left == 59
  # From 3e7 it is 33; from 1e7 it would be 3 + 200.
  assert take_piece(clock, budget, 'native', 10**8, 0.0, 30.0)
  assert budget.left == 29
  assert not take_piece(clock, budget, 'native', 2 * 10**8, 0.0, 0.0)


def test_a_smaller_size_is_expected_to_take_no_less(monkeypatch):
  clock = Clock(monkeypatch)
  budget = turns.Budget(10)
  take_piece(clock, budget, 'native', 1000, 3.0, 3.0)
  assert not take_piece(clock, budget, 'native', 1, 0.0, 0.0)


def test_another_kind_first_takes_as_long_as_the_one_before(monkeypatch):
  clock = Clock(monkeypatch)
  budget = turns.Budget(10)
  take_piece(clock, budget, 'native', 10, 4.0, 0.5)
  assert take_piece(clock, budget, 'XLA', 10, 0.5, 0.0)
  # By its own time now.
  assert take_piece(clock, budget, 'XLA', 20, 0.5, 0.0)
  assert not take_piece(clock, budget, 'native', 20, 0.5, 0.0)


def test_a_failed_piece_uses_seconds_and_predicts_nothing(monkeypatch):
  clock = Clock(monkeypatch)
  budget = turns.Budget(10)
  take_piece(clock, budget, 'native', 10, 1.0, 0.0)
  with pytest.raises(turns.OutOfBudgetError):
    with budget.piece('XLA', 10) as piece:
      clock.now += 8
      piece.check()
      clock.now += 1
      piece.check()
  assert budget.left == 0
  budget.seconds = 12
  # 1 s as native, not 9.
  assert take_piece(clock, budget, 'XLA', 10, 0.5, 0.0)


def test_the_first_piece_is_never_ended(monkeypatch):
  clock = Clock(monkeypatch)
  with turns.Budget(1).piece('native', 10) as piece:
    clock.now += 5
    piece.check()


def test_prepared_counts_the_calls_of_all_works(monkeypatch):
  clock = Clock(monkeypatch)
  budget = turns.Budget(1000)
  with budget.piece('native', 10) as piece:
    works = [
      turns.plan(clock.work('a', 2.0), 5, 4),
      turns.plan(clock.work('b', 1.0), 5, 4),
    ]
    piece.prepared(works, 0.5)
  assert [work.seconds for work in works] == [2.0, 1.0]
  # 2 calls each so far; one before them, and two of each of two rounds.
  assert piece.fixed == 6.0
  assert piece.growing == 0.5 + 3.0 * (3 + 2 * 2)
  assert piece.expected(20) == 6.0 + 2 * piece.growing


def test_the_end_is_that_of_an_equal_part_of_what_is_left(monkeypatch):
  clock = Clock(monkeypatch)
  clock.now = 100.0
  budget = turns.Budget(30)
  with budget.piece('native', 10):
    clock.now += 6
    assert budget.left == 24 and budget.end(3) == 106 + 8
  clock.now += 50
  assert budget.left == 24 and budget.end(2) == 156 + 12
  budget.seconds = 1
  assert budget.end(2) == 156
