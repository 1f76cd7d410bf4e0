import queue

import pytest

from terngrad.exchange import tasks
from terngrad.training import watchdog

OTHERS = [tasks.Task('ps', 0, 'localhost:1'), tasks.Task('worker', 1, 'b:2')]


@pytest.fixture
def silent(monkeypatch):
  """Names of jobs whose tasks do not answer."""
  jobs = set()
  monkeypatch.setattr(tasks, 'answers', lambda task: task.job not in jobs)
  return jobs


def ended(timeout, expect=None, wait=30):
  """What the watchdog says of a step that does not end; None for nothing."""
  said = queue.Queue()
  with watchdog.Watchdog(OTHERS, timeout, said.put) as dog:
    if expect:
      dog.expect(times=expect)
    try:
      return said.get(timeout=wait)
    except queue.Empty:
      return None


def test_a_silent_task_is_named(silent):
  silent.add('worker')
  message = ended(0.05)
  assert 'received no answer from worker 1 (b:2). ' in message
  assert 'ps 0' not in message
  assert '--step_timeout=0.05' in message


def test_a_step_that_is_only_slow_is_told_apart(silent):
  assert 'though all tasks answer' in ended(0.05)


def test_nothing_is_said_of_a_step_that_has_time_left(silent):
  silent.add('worker')
  assert ended(0.05, expect=1e6, wait=0.3) is None
