"""Signals that wait for the end of a call, and what they end."""

import os
import select
import signal
import time

import pytest

from terngrad import signal_guard
from terngrad.launching import interruptions as interruptions_lib
from terngrad.launching import watch


@pytest.fixture(autouse=True)
def default_handlers():
  """Signals as in a program on a terminal; in the background some are not."""
  before = {
    number: signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
  }
  yield
  for number, handler in before.items():
    signal.signal(number, handler)


@pytest.fixture
def interruptions():
  return interruptions_lib.Interruptions()


def test_a_signal_waits_for_the_next_check(interruptions):
  with interruptions.delay_signals():
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(interruptions_lib.LaunchInterrupted) as raised:
      interruptions.check()
  assert raised.value.number == signal.SIGTERM
  # The tasks can be asked to end then.
  interruptions.check()


def test_a_signal_ends_a_pause(interruptions, monkeypatch):
  wait = select.select

  def signalled(*words):
    os.kill(os.getpid(), signal.SIGTERM)
    return wait(*words)

  monkeypatch.setattr(select, 'select', signalled)
  with interruptions.delay_signals():
    with pytest.raises(interruptions_lib.LaunchInterrupted):
      interruptions.pause(600)


def test_signals_that_nohup_ignores_stay_ignored(interruptions):
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  try:
    with interruptions.delay_signals():
      os.kill(os.getpid(), signal.SIGHUP)
      interruptions.check()
      with interruptions.interrupt_at_once():
        os.kill(os.getpid(), signal.SIGHUP)
  finally:
    signal.signal(signal.SIGHUP, before)


def test_handlers_are_restored(interruptions):
  numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
  before = [signal.getsignal(number) for number in numbers]
  with interruptions.delay_signals():
    with interruptions.interrupt_at_once():
      assert signal.getsignal(signal.SIGTERM) not in before
  assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.parametrize(('variable', 'seconds'), [('', 29), ('100', 102)])
def test_tasks_have_their_time_to_save_after_a_signal(
  interruptions, monkeypatch, capsys, variable, seconds
):
  monkeypatch.setenv(signal_guard.VARIABLE, variable)
  asked = []

  class Experiment:
    end_all = asked.append

  assert watch.end_all(Experiment(), interruptions, signal.SIGTERM) == 143
  assert asked == [seconds]
  assert 'signal 15: stopping all tasks' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('first', 'other', 'one_request'),
  [
    (signal.SIGTERM, signal.SIGTERM, 1),
    (signal.SIGINT, signal.SIGTERM, 2),
    (signal.SIGHUP, signal.SIGTERM, 1),
  ],
)
def test_a_second_request_kills_and_the_same_one_does_not(
  interruptions, monkeypatch, capsys, first, other, one_request
):
  now, asked = [100.0], []
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])

  class Experiment:
    def end_all(self, seconds):
      asked.append(seconds)
      now[0] += (one_request if seconds else 1) - 0.3
      os.kill(os.getpid(), other)
      asked.append('goes on')
      if seconds:
        now[0] += 0.6
        os.kill(os.getpid(), other)
        asked.append('too far')

  with interruptions.delay_signals():
    os.kill(os.getpid(), first)
    with pytest.raises(interruptions_lib.LaunchInterrupted):
      interruptions.check()
    assert watch.end_all(Experiment(), interruptions, first) == 128 + other
  assert asked == [29, 'goes on', 0, 'goes on']
  assert f'signal {other.value} again: killing' in capsys.readouterr().out


def test_a_second_request_before_the_tasks_are_asked_kills_them(
  interruptions, monkeypatch
):
  now, asked = [100.0], []
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])

  class Experiment:
    end_all = asked.append

  with interruptions.delay_signals():
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(interruptions_lib.LaunchInterrupted):
      interruptions.check()
    now[0] += 2
    os.kill(os.getpid(), signal.SIGTERM)
    watch.end_all(Experiment(), interruptions, signal.SIGTERM)
  assert asked == [0]
