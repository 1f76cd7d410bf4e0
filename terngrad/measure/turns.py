"""Timing in turns, in which slow works take fewer turns, within a budget.

One call of a work should take a fraction of a second, so fast works are
repeated. A work of several seconds needs few rounds: its time varies by less
than its distance from the others. A `Budget` decides which works are timed.
"""

import contextlib
import math
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
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
# Calls of a work in a piece with the fewest rounds: one while it is built, two
# in `plan`, and in each round one that settles and one that is timed.
_CALLS = 3 + 2 * FEWEST_ROUNDS


class Work(NamedTuple):
  """A job to time.

  Attributes:
    job: the job.
    times: repetitions of the work in one call.
    rounds: how often it is timed.
    settles: True runs it once untimed before each timed call.
    seconds: seconds of one repetition, as `plan` measured them.
  """

  job: timing.Job
  times: int
  rounds: int
  settles: bool = True
  seconds: float = 0.0


class OutOfBudgetError(Exception):
  """A piece of work does not fit into the seconds that are left."""


class TimedPiece:
  """One implementation of a code on one number of elements.

  Attributes:
    kind: name of the implementation.
    size: number of elements.
    fixed: seconds that do not depend on the number of elements: compiling.
    growing: seconds that are proportional to the number of elements.
  """

  def __init__(
    self, budget: 'Budget', kind: str, size: int, is_first: bool
  ) -> None:
    """`Budget.piece` makes pieces."""
    self.kind, self.size = kind, size
    self.fixed = self.growing = 0.0
    self._budget, self._is_first = budget, is_first
    self._begin = time.perf_counter()

  def check(self) -> None:
    """Raises `OutOfBudgetError` if no seconds are left, except in the first."""
    if not self._is_first and self._budget.left <= 0:
      raise OutOfBudgetError

  def prepared(self, works: Iterable[Work], more: float = 0.0) -> None:
    """Call it after building the works, before timing them.

    Args:
      works: the works, from `plan`.
      more: other seconds so far that are proportional to the elements.
    """
    self.fixed = time.perf_counter() - self._begin
    self.growing = more + _CALLS * sum(work.seconds for work in works)

  def expected(self, size: int) -> float:
    """Returns the seconds that this takes with the fewest rounds."""
    return self.fixed + self.growing * max(1.0, size / self.size)


class Budget:
  """The seconds of one code, at all sizes and in all implementations.

  The first piece of work always fits. A later one fits if its expected seconds
  are left: those of the same implementation on the next smaller number of
  elements, of which the part that grows is scaled by the elements. The first
  piece of an implementation is expected to take as long as that of another.

  Attributes:
    seconds: all seconds.
  """

  def __init__(self, seconds: float = math.inf) -> None:
    """Takes the number of seconds."""
    self.seconds = seconds
    self._used, self._begin = 0.0, math.inf
    self._pieces: list[TimedPiece] = []

  @property
  def left(self) -> float:
    """Seconds that are left, below 0 if pieces took more."""
    running = max(0.0, time.perf_counter() - self._begin)
    return self.seconds - self._used - running

  def end(self, parts: int) -> float:
    """Returns when the first of `parts` equal parts of what is left ends."""
    return time.perf_counter() + max(0.0, self.left) / parts

  @contextlib.contextmanager
  def piece(self, kind: str, size: int) -> Iterator[TimedPiece]:
    """Counts the seconds of the block, if it fits.

    Raises:
      OutOfBudgetError: it does not fit.
    """
    is_first = not self._pieces
    if not is_first and self._expected(kind, size) >= self.left:
      raise OutOfBudgetError
    self._begin = time.perf_counter()
    piece = TimedPiece(self, kind, size, is_first)
    try:
      yield piece
      self._pieces.append(piece)
    finally:
      self._used += time.perf_counter() - self._begin
      self._begin = math.inf

  def _expected(self, kind: str, size: int) -> float:
    """Returns the expected seconds of a piece, from an earlier one."""
    alike = [p for p in self._pieces if p.kind == kind] or self._pieces
    smaller = [p for p in alike if p.size <= size]
    if smaller:
      return max(smaller, key=lambda p: p.size).expected(size)
    return min(alike, key=lambda p: p.size).expected(size)


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
    lambda: repeatable(times), times, min(rounds, affordable), settles, seconds
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
