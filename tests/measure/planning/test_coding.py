"""Codes are timed in turns, for a limited time."""

import itertools

import pytest

from terngrad.codec.methods import registry
from terngrad.measure.planning import coding


@pytest.fixture
def turns(monkeypatch):
  """The order of the calls of made-up jobs, each of which takes a second."""
  found = []
  clock = itertools.count()

  def jobs(text):
    return {
      name: lambda name=name: found.append((text, name))
      for name in ('send', 'receive', 'receive 8')
    }

  monkeypatch.setattr(coding, '_jobs', jobs)
  monkeypatch.setattr(coding, '_now', lambda: float(next(clock)))
  return found


def test_every_code_takes_a_turn_in_every_round(turns):
  coding.measure_all(['a', 'b'], rounds=2)
  order = [text for text, _ in itertools.groupby(turns, lambda call: call[0])]
  # Compiled one after the other, then timed in two rounds.
  assert order == ['a', 'b'] * 3
  # Each job runs once untimed before it is timed.
  assert turns[:4] == [('a', 'send')] * 2 + [('a', 'receive')] * 2


def test_no_round_begins_when_the_time_is_over(turns):
  coding.measure_all(['a'], rounds=100, most_seconds=0)
  # The round that compiles, and the fewest rounds; each has three jobs.
  assert len(turns) == 2 * 3 * (1 + coding.FEWEST_ROUNDS)


def test_costs_are_lower_quartiles_per_element_with_their_spread():
  rounds = [[1.0, 1.0, 7.0], [1.0, 2.0, 8.0], [1.0, 3.0, 9.0], [1.0, 4.0, 10.0]]
  cost = coding._cost(
    ['send', 'receive', 'receive 8'], [[2**20 * x for x in r] for r in rounds]
  )
  assert cost.send == 1.0
  assert cost.receive == 1.75
  # Six workers more take 7.75 - 1.75.
  assert cost.more == 1.0
  # The sums 2, 3, 4, 5 have the quartiles 2.75 and 4.25.
  assert cost.spread == pytest.approx(0.75 / 2.75)


def test_rounds_that_other_programs_make_slower_do_not_change_the_cost():
  rounds = [[2.0**20, 2.0**20, 2.0**20]] * 8
  slower = [*rounds[:4], *[[9.0 * x for x in r] for r in rounds[4:]]]
  found = [
    coding._cost(['send', 'receive', 'receive 8'], each)[:3]
    for each in (rounds, slower)
  ]
  assert found[0] == found[1]


@pytest.mark.parametrize(
  'text',
  [
    'identity',
    'ternary',
    'error_feedback+powersgd',
    pytest.param('thc', marks=pytest.mark.slow),
  ],
)
@pytest.mark.gate_every(4)
def test_coding_is_timed_for_every_kind_of_method(text):
  cost = coding.measure(text, rounds=1)
  assert cost.send > 0 and cost.receive > 0 and cost.more >= 0
  assert registry.method(text, 2)


def test_words_that_depend_on_the_workers_are_encoded_for_each_number():
  # The digits of the sums of two and of eight workers differ in size.
  jobs = coding._jobs('ternary:packing=radix')
  assert [*jobs] == ['send', 'receive', 'receive 8']
  for job in jobs.values():
    job()
