"""Timing in turns, in which slow works take fewer turns.

One call of a work should take a fraction of a second, so fast works are
repeated. A work of several seconds needs few rounds: its time varies by less
than its distance from the others.
"""

import math
import time
from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple
from typing import TypeVar

from terngrad.measure import timing

_K = TypeVar('_K')
# The aim for one call, and for all timed calls of one work.
_SECONDS_A_CALL = 0.1
_SECONDS_A_WORK = 4.0
FEWEST_ROUNDS = 2
# Shorter works settle before they are timed, see `timing.time_once`.
_SETTLED_BELOW = 0.5


class Work(NamedTuple):
  """A job to time.

  Attributes:
    job: the job.
    times: repetitions of the work in one call.
    rounds: how often it is timed.
    settles: True runs it once untimed before each timed call.
  """

  job: timing.Job
  times: int
  rounds: int
  settles: bool = True


def plan(repeatable: timing.Repeatable, most_times: int, rounds: int) -> Work:
  """Chooses repetitions and rounds from the time of one call.

  Args:
    repeatable: the work. It runs twice here; the first call may compile.
    most_times: largest number of repetitions.
    rounds: largest number of rounds.
  """
  repeatable(1)
  start = time.perf_counter()
  repeatable(1)
  seconds = max(time.perf_counter() - start, 1e-9)
  times = max(1, min(most_times, int(_SECONDS_A_CALL / seconds)))
  settles = seconds < _SETTLED_BELOW
  a_round = seconds * times * (2 if settles else 1)
  affordable = max(FEWEST_ROUNDS, int(_SECONDS_A_WORK / a_round))
  return Work(
    lambda: repeatable(times), times, min(rounds, affordable), settles
  )


def take(
  works: Mapping[_K, Work],
  rounds: int,
  advance: Callable[[], object] = lambda: None,
  end: float = math.inf,
) -> dict[_K, list[float]]:
  """Times works round by round, so that a slow period affects all of them.

  Args:
    works: by name.
    rounds: number of rounds; a work with fewer is in the first ones.
    advance: called after each round, and for each round that is left out.
    end: no round begins after this time of `time.perf_counter`, except the
      first 2.

  Returns:
    By name, the seconds per repetition, one value per round.
  """
  seconds: dict[_K, list[float]] = {name: [] for name in works}
  for number in range(rounds):
    is_late = number >= FEWEST_ROUNDS and time.perf_counter() >= end
    for name, work in works.items():
      if is_late or number >= work.rounds:
        continue
      found = timing.time_once(work.job, work.settles)
      seconds[name].append(found / work.times)
    advance()
  return seconds
