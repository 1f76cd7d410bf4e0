"""What the lines about tasks say of a run."""

import types

import pytest

from terngrad.cluster import watchdog
from terngrad.launching import remote
from terngrad.launching import watch

LINE = 'worker_1 on a.example: '


@pytest.mark.parametrize(
  ('state', 'field'),
  [
    ('running (process 7)', 'running'),
    ('stopped', 'stopped'),
    ('ended (exit code 0)', ''),
    ('ended (exit code 1)', 'failed'),
    ('ended (exit code 127)', 'failed'),
    ('ended (exit code 75)', 'lost'),
    ('ended (exit code 128)', 'lost'),
    ('ended (exit code 129)', 'lost'),
    ('ended (exit code 137)', 'lost'),
    ('ended (exit code 130)', 'stopped'),
    ('ended (exit code 143)', 'stopped'),
    ('ended', 'lost'),
  ],
)
def test_status_lines_give_the_state_of_a_task(state, field):
  found = watch.TaskStates(unknown=1).add(f'{LINE}{state}')
  assert found.unknown == 0
  counts = found._replace(code=0)._asdict()
  assert [name for name, value in counts.items() if value] == [field] * bool(
    field
  )


def test_other_lines_are_ignored():
  before = watch.TaskStates(unknown=1)
  for line in ('Welcome.', 'worker_1 on a: expected: ssh to work', LINE):
    assert before.add(line) == before


@pytest.mark.parametrize(
  ('text', 'seconds'), [('7.5', 7.5), ('-1', 0), ('soon', 30), ('', 30)]
)
def test_the_environment_sets_the_settle_time(
  monkeypatch, capsys, text, seconds
):
  monkeypatch.setenv(watch.SETTLE_VARIABLE, text)
  assert watch.settle_seconds() == seconds
  warning = "received 'soon'; 30 are used"
  assert (warning in capsys.readouterr().out) == (text == 'soon')


class Experiment:
  """A task that is killed once, on a host that then answers to some calls."""

  def __init__(self, answers):
    self._answers = iter(answers)
    self._states = iter(['ended', 'ended (exit code 0)'])
    self.tasks = ['task']
    self.tunnels = types.SimpleNamespace(
      status=lambda: remote.CallResult(True, [])
    )
    self.starts = []

  def status(self, task):
    return remote.CallResult(True, [f'{LINE}{next(self._states)}'])

  def end_all(self, seconds):
    return next(self._answers)

  def start_all(self, resumes):
    self.starts.append(resumes)
    return True

  def close_tunnels(self):
    pass


class Interruptions:
  """Counts the pauses, which take no time."""

  pauses = 0

  def pause(self, seconds):
    self.pauses += 1


@pytest.fixture
def no_settle_time(monkeypatch):
  monkeypatch.setenv(watch.SETTLE_VARIABLE, '0')


def test_a_restart_waits_for_a_host_that_restarts(no_settle_time, capsys):
  experiment, interruptions = Experiment([False, False, True]), Interruptions()
  assert watch.Watch(experiment, interruptions, 1).run() == 0
  assert experiment.starts == [True]
  assert interruptions.pauses == 2
  assert 'waiting up to 600 s for it' in capsys.readouterr().out


def test_a_restart_gives_up_a_host_that_stays_away(no_settle_time, monkeypatch):
  monkeypatch.setenv(watch.HOST_VARIABLE, '0')
  experiment, interruptions = Experiment([False, False]), Interruptions()
  code = watch.Watch(experiment, interruptions, 5).run()
  assert code == watchdog.LOST
  assert (experiment.starts, interruptions.pauses) == ([], 0)
