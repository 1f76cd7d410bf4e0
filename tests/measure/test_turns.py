"""Slow works take fewer turns."""

import numpy as np

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
