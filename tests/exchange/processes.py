"""Starts the processes of a cluster on this machine."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from typing import NamedTuple

from terngrad import signal_guard

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Seconds that a process may take, many times what it does, on a busy machine.
LIMIT = 1800


class Ended(NamedTuple):
  """What a process left."""

  code: int
  log: str


def addresses(count):
  """Addresses of this machine whose ports nobody uses."""
  with contextlib.ExitStack() as stack:
    # All at once, so that they differ.
    sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
    for one in sockets:
      one.bind(('127.0.0.1', 0))
    return [f'127.0.0.1:{one.getsockname()[1]}' for one in sockets]


class Processes:
  """Processes that run side by side until all have ended or are killed."""

  def __init__(self):
    self._logs = []
    self.processes = []

  def __enter__(self):
    return self

  def __exit__(self, *error):
    del error
    for process in self.processes:
      process.kill()
      process.wait()
    for log in self._logs:
      log.close()

  def start(self, *words, **environment):
    """Starts `python WORDS...`."""
    # A file and not a pipe, so that it cannot fill up while nobody reads.
    log = tempfile.TemporaryFile('w+')
    self._logs.append(log)
    process = subprocess.Popen(
      [sys.executable, *map(str, words)],
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
      env=os.environ
      | {'PYTHONPATH': str(ROOT), 'TF_CPP_MIN_LOG_LEVEL': '2'}
      # After a signal a step may take its time on a busy machine.
      | {signal_guard.VARIABLE: str(LIMIT)}
      | environment,
    )
    self.processes.append(process)
    return process

  def log(self, index):
    """What a process has written so far."""
    self._logs[index].flush()
    self._logs[index].seek(0)
    return self._logs[index].read()

  def wait(self):
    """Waits for all; a list of `Ended`."""
    codes = [process.wait(timeout=LIMIT) for process in self.processes]
    return [Ended(code, self.log(i)) for i, code in enumerate(codes)]


def train_small(folder, count, jobs, conform=()):
  """Runs `small_process.py` on `count` processes; a list of `Ended`.

  Args:
    folder: for the results, `<rank>.npz` and `<rank>.pickle`.
    count: of processes.
    jobs: list of dict, see there.
    conform: list of dict, see there.
  """
  hosts = addresses(count)
  script = ROOT / 'tests' / 'exchange' / 'small_process.py'
  with Processes() as processes:
    for rank in range(count):
      request = {'hosts': hosts, 'rank': rank, 'folder': str(folder)}
      request |= {'jobs': jobs, 'conform': conform}
      processes.start(script, json.dumps(request))
    return processes.wait()
