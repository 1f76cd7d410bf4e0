"""Functions of scripts/dist_tasks.sh, called by several shells at once."""

import os
import pathlib
import subprocess

import pytest

TASKS = pathlib.Path(__file__).parents[2] / 'scripts' / 'dist_tasks.sh'


class Host:
  """A folder of an experiment, and shells that call functions for it."""

  def __init__(self, folder):
    self.folder = folder / 'e'
    self.calls = folder / 'calls'
    self.task = folder / 'task'
    # A task ends when nobody can write to this pipe any longer.
    self.fifo = folder / 'fifo'
    os.mkfifo(self.fifo)
    self.task.write_text(
      f'#!/bin/bash\necho $$ >>"{self.calls}"\nread -r <"{self.fifo}"\n'
    )
    self.task.chmod(0o755)

  def shell(self, *words):
    return subprocess.Popen(
      ['bash', '-c', f'source "{TASKS}"\n"$@"', 'bash', *map(str, words)],
      stdout=subprocess.PIPE,
      text=True,
    )

  def call(self, *words):
    shell = self.shell(*words)
    out, _ = shell.communicate(timeout=60)
    return shell.returncode, out

  def start(self):
    return self.shell('start_task', self.folder, 'worker_0', self.task)


@pytest.fixture
def host(tmp_path):
  found = Host(tmp_path)
  # Open to read and to write, a pipe waits for no other end.
  with open(found.fifo, 'r+b', buffering=0):
    yield found


def test_of_several_starts_at_once_one_starts_the_task(host):
  shells = [host.start() for _ in range(8)]
  outs = [shell.communicate(timeout=60)[0] for shell in shells]
  assert sorted(shell.returncode for shell in shells) == [0] + 7 * [1]
  assert sum('started (process' in out for out in outs) == 1
  assert sum('expected a task that is not running' in out for out in outs) == 7
  assert host.call('stop_tasks', host.folder, 10) == (0, 'stopped worker_0\n')
  assert len(host.calls.read_text().splitlines()) == 1


def test_a_task_that_was_stopped_starts_again(host):
  for _ in range(2):
    shell = host.start()
    assert 'started' in shell.communicate(timeout=60)[0]
    assert host.call('stop_tasks', host.folder, 10) == (
      0,
      'stopped worker_0\n',
    )
