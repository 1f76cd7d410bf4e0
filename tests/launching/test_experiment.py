"""What an experiment leaves on the machine that started it."""

import dataclasses
import os
import pathlib
import types

import pytest

from terngrad import errors
from terngrad.launching import configuration
from terngrad.launching import experiment as experiments
from terngrad.launching import interruptions as interruptions_lib
from terngrad.launching import remote
from terngrad.launching import tasks as tasks_lib
from terngrad.launching import watch


@pytest.fixture
def config(tmp_path):
  return configuration.Configuration(
    source='',
    ps_hosts=(),
    worker_hosts=('localhost:2222',),
    worker_devices=('',),
    data_dirs=('',),
    worker_script='/x',
    ps_script='/x',
    workspace=str(tmp_path),
    allow_insecure_network='false',
  )


def test_a_folder_that_cannot_be_made_is_refused(config, tmp_path):
  (tmp_path / 'run').touch()
  experiment = experiments.Experiment(config, 'run', [], hosts=None)
  with pytest.raises(errors.ConfigError, match='give a WORKSPACE that is wri'):
    experiment.record()


def test_a_latest_experiment_that_is_no_utf8_is_refused(config, tmp_path):
  (tmp_path / 'latest_experiment').write_bytes(b'a\xff\n')
  with pytest.raises(errors.ConfigError, match='invalid name of an exp'):
    experiments.latest(config)


def test_home_is_found_without_the_variable(monkeypatch):
  monkeypatch.setenv('HOME', '/a')
  assert configuration.expand_home('~/b') == '/a/b'
  assert configuration.expand_home('~root/b') == '~root/b'
  monkeypatch.delenv('HOME')
  assert configuration.expand_home('~/b') == f'{pathlib.Path.home()}/b'
  assert os.path.isabs(configuration.expand_home('~/b'))


class Hosts:
  """Records the calls, which all succeed."""

  def __init__(self):
    self.commands, self.seconds = {}, {}

  def call(self, address, label, function, *words, seconds):
    del address
    self.commands[label], self.seconds[function] = words, seconds
    return remote.CallResult(True, ['ok'])


@pytest.fixture
def started(config):
  """An experiment with a server and a worker that overwrites; its hosts."""
  hosts = Hosts()
  tasks = [
    tasks_lib.LaunchTask(name, 'localhost:1', '', '', ('/x', '--overwrite'))
    for name in ('ps_0', 'worker_0')
  ]
  return experiments.Experiment(config, 'run', tasks, hosts), hosts


def test_workers_that_resume_delete_no_checkpoints(started):
  experiment, hosts = started
  assert experiment.start_all()
  assert hosts.commands['worker_0'][-1] == '--overwrite'
  assert experiment.start_all(resumes=True)
  assert hosts.commands['worker_0'][-2:] == ('--overwrite', '--overwrite=false')
  assert hosts.commands['ps_0'][-1] == '--overwrite'


def test_slow_calls_have_more_time(started):
  experiment, hosts = started
  experiment.status(experiment.tasks[0])
  experiment.versions(experiment.tasks[0], '/x')
  experiment.end_all(100)
  short = remote.CALL_SECONDS
  assert hosts.seconds == {
    'task_status': short,
    'report_versions': 300 + short,
    'stop_tasks': 100 + short,
  }


def test_the_host_of_the_chief_is_stopped_first(config):
  ended = []
  hosts = types.SimpleNamespace(
    call=lambda address, *words, seconds: (
      ended.append(address) or remote.CallResult(True, [])
    )
  )
  config = dataclasses.replace(
    config,
    ps_hosts=('a:1', 'b:1'),
    worker_hosts=('c:1', 'a:2'),
    worker_devices=('', ''),
    data_dirs=('', ''),
  )
  experiments.Experiment(config, 'run', [], hosts).end_all(100)
  assert ended == ['c:1', 'a:1', 'b:1']


def test_a_signal_stops_the_tasks_of_a_launcher_that_nobody_reads(
  started, close_output
):
  close_output()
  experiment, hosts = started
  interruptions = interruptions_lib.Interruptions()
  assert watch.end_all(experiment, interruptions, 15) == 143
  assert 'stop_tasks' in hosts.seconds
  assert experiment.start_all()
  assert len(hosts.commands) == 3
