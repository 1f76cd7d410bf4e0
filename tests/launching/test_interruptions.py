"""Signals that wait for the end of a call, and what they end."""

import os
import select
import signal

import pytest

from terngrad import signal_guard
from terngrad.launching import interruptions as interruptions_lib
from terngrad.launching import watch


@pytest.fixture
def interruptions():
  return interruptions_lib.Interruptions()


def test_a_signal_waits_for_the_next_look(interruptions):
  with interruptions.heeded():
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(interruptions_lib.Interrupted) as raised:
      interruptions.check()
  assert raised.value.number == signal.SIGTERM
  # The tasks can be asked to end then.
  interruptions.check()


def test_a_signal_ends_a_pause(interruptions, monkeypatch):
  wait = select.select

  def signalled(*words):
    os.kill(os.getpid(), signal.SIGINT)
    return wait(*words)

  monkeypatch.setattr(select, 'select', signalled)
  with interruptions.heeded():
    with pytest.raises(interruptions_lib.Interrupted):
      interruptions.pause(600)


def test_what_nohup_ignores_stays_ignored(interruptions):
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  try:
    with interruptions.heeded():
      os.kill(os.getpid(), signal.SIGHUP)
      interruptions.check()
    with interruptions_lib.deadly():
      os.kill(os.getpid(), signal.SIGHUP)
  finally:
    signal.signal(signal.SIGHUP, before)


def test_handlers_are_those_of_before_afterwards(interruptions):
  numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
  before = [signal.getsignal(number) for number in numbers]
  with interruptions.heeded():
    pass
  with interruptions_lib.deadly():
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
  assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.parametrize(('variable', 'seconds'), [('', 29), ('100', 102)])
def test_tasks_have_their_time_to_save_after_a_signal(
  monkeypatch, capsys, variable, seconds
):
  monkeypatch.setenv(signal_guard.VARIABLE, variable)
  asked = []

  class Experiment:
    end_all = asked.append

  assert watch.end_all(Experiment(), signal.SIGTERM) == 143
  assert asked == [seconds]
  assert 'signal 15: stopping all tasks' in capsys.readouterr().out
