"""Inputs for a target, one after the other, from what was found before."""

import pathlib
import random
import re
import resource
import signal
import traceback
from typing import NamedTuple

from tests.fuzzing import mutation
from tests.fuzzing import reached

_MEBIBYTE = 1 << 20
# More than `Target.mebibytes`: what is asked for and not used counts too.
_MOST_ASKED = 1024 * _MEBIBYTE
# Of an input that waits for something, in seconds.
_MOST_WAIT = 120


class Found(NamedTuple):
  """What a search saw.

  Attributes:
    inputs: how many there were.
    accepted: how many were not refused.
    kept: how many reached something new.
    mebibytes: by which the process grew, at most.
    failure: text, or ''.
    content: of the input that failed.
    shares: see `reached.Reached.shares`.
  """

  inputs: int
  accepted: int
  kept: int
  mebibytes: float
  failure: str
  content: bytes
  shares: dict


class Outcome(NamedTuple):
  """Of one input.

  Attributes:
    failure: text, or ''.
    is_new: whether it reached something new.
    is_accepted: whether it was not refused.
  """

  failure: str
  is_new: bool
  is_accepted: bool


class Limits:
  """Ends the process where an input takes too much processor time or memory.

  Attributes:
    peak: bytes by which the process grew, at most.
  """

  def __init__(self, target):
    """Counts from what the process takes now."""
    self._seconds = target.seconds
    self._mebibytes = target.mebibytes
    self.peak = 0
    most = _status('VmSize') + _MOST_ASKED
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

  def __enter__(self):
    pathlib.Path('/proc/self/clear_refs').write_text('5')
    self._before = _status('VmHWM')
    # Without handlers: nothing can hold these up.
    signal.setitimer(signal.ITIMER_VIRTUAL, self._seconds)
    signal.setitimer(signal.ITIMER_REAL, _MOST_WAIT)
    return self

  def __exit__(self, *_):
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    grown = _status('VmHWM') - self._before
    self.peak = max(self.peak, grown)
    if grown > self._mebibytes * _MEBIBYTE:
      raise MemoryError(
        f'expected at most {self._mebibytes} MiB, took {grown / _MEBIBYTE:.0f}'
      )


class NoLimits:
  """Stands for `Limits` where a test runs in a process of many."""

  peak = 0

  def __enter__(self):
    return self

  def __exit__(self, *_):
    return None


def _status(name):
  """Bytes, from the process's status."""
  status = pathlib.Path('/proc/self/status').read_text()
  return 1024 * int(re.search(rf'{name}:\s+(\d+) kB', status)[1])


def search(target, seed, inputs, folder, limited, note=lambda content: None):
  """Tries inputs until one fails.

  Args:
    target: `target.Target`.
    seed: of all draws, str or int.
    inputs: how many, the target's seeds among them.
    folder: where the target works.
    limited: whether memory and time are; that is for the whole process.
    note: is told each input before it is tried.

  Returns:
    `Found`.
  """
  watched = reached.Reached(target.modules)
  for content in target.seeds:
    # These may load, trace and compile, without limits.
    _, raised = watched.run(target.parse, content, folder)
    if raised:
      raise RuntimeError('a seed was refused') from raised
  limits = Limits(target) if limited else NoLimits()
  corpus = list(target.seeds)
  draws = random.Random(f'{seed}')
  done, accepted, failure, content = len(corpus), len(corpus), '', b''
  while done < inputs and not failure:
    done += 1
    content = _drawn(draws, corpus, target)
    note(content)
    outcome = attempt(target, content, folder, watched, limits)
    failure = outcome.failure
    accepted += outcome.is_accepted
    if outcome.is_new:
      corpus.append(content)
  return Found(
    inputs=done,
    accepted=accepted,
    kept=len(corpus) - len(target.seeds),
    mebibytes=limits.peak / _MEBIBYTE,
    failure=failure,
    content=content if failure else b'',
    shares=watched.shares(),
  )


def _drawn(draws, corpus, target):
  """The next input."""
  # One of two is of a seed: what was kept last is often the most damaged.
  some = target.seeds if draws.randrange(2) else corpus
  content = mutation.mutated(draws, draws.choice(some), corpus, target.words)
  return target.repair(draws, content) if draws.randrange(2) else content


def attempt(target, content, folder, watched, limits):
  """The `Outcome` of one input."""
  try:
    with limits:
      is_new, raised = watched.run(target.parse, content, folder)
  except MemoryError as error:
    return Outcome(f'{error}', False, False)
  if raised is None:
    return Outcome('', is_new, True)
  if isinstance(raised, target.refusals):
    return Outcome('', is_new, False)
  return Outcome(''.join(traceback.format_exception(raised)), is_new, False)
