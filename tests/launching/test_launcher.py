"""Starts of tasks, on this machine, by functions that only count."""

import signal

import pytest

from terngrad.launching import configuration
from terngrad.launching import launcher
from terngrad.launching import tasks as tasks_lib

# The launcher is the parent of each call.
_FUNCTIONS = """\
check_task() { :; }
start_task() { echo "$2" >>"$calls"; kill -TERM "$PPID"; }
stop_tasks() { echo stop >>"$calls"; }
"""


@pytest.fixture
def taken():
  """The signals that came while no launcher handled them."""
  numbers = []
  before = signal.signal(signal.SIGTERM, lambda n, _: numbers.append(n))
  yield numbers
  signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize('count', [1, 2])
def test_a_signal_while_tasks_start_stops_them(
  tmp_path, monkeypatch, taken, count
):
  (tmp_path / 'dist_tasks.sh').write_text(_FUNCTIONS)
  calls = tmp_path / 'calls'
  monkeypatch.setenv('calls', str(calls))
  config = configuration.Configuration(
    source='',
    ps_hosts=(),
    worker_hosts=('localhost:1', 'localhost:2')[:count],
    worker_devices=('',) * count,
    data_dirs=('',) * count,
    worker_script='/x',
    ps_script='/x',
    workspace=str(tmp_path),
    allow_insecure_network='false',
  )
  tasks = [
    tasks_lib.LaunchTask(f'worker_{i}', address, '', '', ('/x',))
    for i, address in enumerate(config.worker_hosts)
  ]
  request = launcher.LaunchRequest(
    config=config, tasks=lambda name: tasks, scripts=str(tmp_path)
  )
  assert launcher.run(request) == 128 + signal.SIGTERM
  assert calls.read_text().split() == ['worker_0', 'stop']
  assert taken == []
