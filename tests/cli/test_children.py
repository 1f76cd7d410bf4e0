"""The exit code of processes that are started side by side."""

import os

import pytest

from terngrad.cli import children
from terngrad.cli import command
from terngrad.cluster import watchdog

STAYS = 'read -r <>"$FIFO"'
# Waits until the other one is gone.
LATER = (
  'read -r pid <>"$FIFO"; while kill -0 $pid 2>/dev/null; do '
  'read -r -t 0.05 <>"$FIFO"; done; '
)


@pytest.fixture
def run(tmp_path):
  fifo = tmp_path / 'fifo'
  os.mkfifo(fifo)

  def run(*bodies):
    commands = [['bash', '-c', body] for body in bodies]
    return children.run(commands, [{'FIFO': str(fifo)}] * len(bodies))

  return run


def test_a_failure_of_the_first_command_ends_all(run):
  assert run('exit 2', STAYS) == 2
  assert run('exit 0', 'exit 0', 'exit 3') == 3


def test_after_a_loss_a_failure_of_another_command_decides(run, monkeypatch):
  monkeypatch.setattr(command, 'SETTLE_SECONDS', 600)
  lost = f'echo $$ >"$FIFO"; exit {watchdog.LOST}'
  assert run(lost, f'{LATER} exit 3') == 3
  assert run(f'exit {watchdog.LOST}', 'kill -KILL $$') == 137


def test_a_loss_without_a_failure_ends_the_run(run, monkeypatch):
  monkeypatch.setattr(command, 'SETTLE_SECONDS', 0)
  assert run(f'exit {watchdog.LOST}', STAYS) == watchdog.LOST
