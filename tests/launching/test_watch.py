"""What the lines about tasks say of a run."""

import pytest

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
def test_the_environment_sets_the_settle_time(monkeypatch, text, seconds):
  monkeypatch.setenv(watch.SETTLE_VARIABLE, text)
  assert watch.settle_seconds() == seconds
