"""`terngrad launch --hosts`: a command on several machines, without a file."""

import errno
import os
import pathlib
import shlex
import sys
import types

import pytest

from terngrad import errors
from terngrad.cli import flags
from terngrad.cli import launch
from terngrad.cli import launch_flags
from terngrad.cli import launch_local
from terngrad.cli import ports

TRAIN = ('train', 'mnist', '--max_steps=4', 'a b')


def dry_run(capsys, **changes):
  """{task: words behind its host} that would be started."""
  usual = {'command': TRAIN}
  if 'config' not in changes or 'hosts' not in changes:
    usual |= {
      'hosts': ('one', 'two:9'),
      'workspace': '/results',
      'allow_insecure_network': True,
    }
  assert (
    launch.launch(launch.LaunchFlags(dry_run=True, **(usual | changes))) == 0
  )
  lines = capsys.readouterr().out.splitlines()
  found = (line.partition(': ') for line in lines)
  return {name: shlex.split(command) for name, _, command in found}


def test_each_host_gets_one_worker(capsys):
  tasks = dry_run(capsys)
  assert set(tasks) == {'worker_0 on one', 'worker_1 on two'}
  words = tasks['worker_1 on two']
  assert words[:7] == [sys.executable, '-m', 'terngrad.cli.main', *TRAIN]
  assert words[7:] == [
    '--worker_hosts=one:2224,two:9',
    '--exchange=collective',
    '--job_name=worker',
    '--task_id=1',
    '--allow_insecure_network',
  ]


def test_servers_are_on_the_first_hosts(capsys):
  tasks = dry_run(capsys, num_ps=1)
  assert list(tasks)[0] == 'ps_0 on one'
  assert '--ps_hosts=one:2222' in tasks['worker_1 on two']
  assert tasks['ps_0 on one'][3] == 'distributed_train'


def test_tunnels_use_loopback_and_need_no_allow_insecure_network(capsys):
  tasks = dry_run(capsys, tunnel=True, allow_insecure_network=False)
  words = tasks['worker_0 on one']
  assert '--worker_hosts=127.0.0.1:2224,127.0.0.1:9' in words
  assert '--allow_insecure_network' not in words
  assert {'tunnel to one', 'tunnel to two'} < set(tasks)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'config': 'x'}, 'received both'),
    ({'scripts': '/nowhere'}, 'give --scripts=FOLDER'),
    ({'num_ps': 3}, '--num_ps: expected 0 to 2'),
    ({'num_workers': 7}, '--num_workers: expected none beside --hosts'),
    ({'workspace': ''}, '--workspace: expected a folder'),
    ({'allow_insecure_network': False}, 'expected --allow_insecure_network'),
    ({'command': ('eval', 'mnist')}, 'train DATASET'),
    ({'status': True}, 'Leave all but one out'),
    ({'seconds': '9'}, '--seconds: expected --stop beside it'),
    ({'config': '', 'hosts': ()}, 'no configuration'),
    ({'hosts': ()}, 'expected --config=FILE or --hosts'),
    ({'hosts': ('a b', 'c')}, 'received: a b:2224'),
    ({'hosts': ('one', 'localhost')}, 'localhost only'),
    ({'restart': '1'}, '--restart without --dry_run'),
    ({'experiment': '../x'}, 'invalid name of an experiment'),
    (
      {'split_dataset': '/data'},
      '--split_dataset: expected --config=FILE beside it',
    ),
    (
      {'config': 'x', 'hosts': (), 'split_dataset': '/data', 'restart': '1'},
      '--restart: expected no --split_dataset beside it, received /data',
    ),
    (
      {'config': 'x', 'hosts': (), 'split_dataset': '/data', 'tunnel': True},
      '--tunnel: expected no --split_dataset',
    ),
    (
      {'config': 'x', 'hosts': (), 'worker_devices': '0 1'},
      '--worker_devices: expected a --split_dataset beside it, received none',
    ),
    *(
      ({'config': 'x', 'hosts': ()} | ignored, f'--{name}: expected none')
      for ignored in (
        {'num_workers': 7},
        {'num_ps': 3},
        {'workspace': '/nowhere'},
        {'allow_insecure_network': True},
      )
      for name in ignored
    ),
  ],
)
def test_invalid_flags_are_refused(capsys, changes, message):
  with pytest.raises((flags.UsageError, errors.ConfigError), match=message):
    dry_run(capsys, **changes)


def test_flags_of_a_split_replace_data_workspace_and_gpus_of_the_file(capsys):
  scripts = pathlib.Path(__file__).resolve().parents[2] / 'scripts'
  tasks = dry_run(
    capsys,
    config=str(scripts / 'config_dist_cifar10.sh'),
    hosts=(),
    split_dataset='/my data',
    workspace='/results',
    worker_devices='0,1 2',
    command=(),
  )
  assert list(tasks)[0] == 'ps_0 on localhost'
  for index, devices in enumerate(('0,1', '2')):
    words = tasks[f'worker_{index} on localhost']
    assert words[5:7] == [devices, f'/my data/worker_{index}_of_2']


def test_splitting_data_for_other_machines_is_refused(capsys, tmp_path):
  scripts = pathlib.Path(__file__).resolve().parents[2] / 'scripts'
  text = (scripts / 'config_dist_cifar10.sh').read_text()
  config = tmp_path / 'config'
  config.write_text(text.replace('localhost:2226', 'other:2226'))
  with pytest.raises(errors.ConfigError, match='only localhost .*'):
    dry_run(
      capsys, config=str(config), hosts=(), split_dataset='/data', command=()
    )


def test_a_split_without_its_script_is_refused(tmp_path):
  values = launch_flags.HostFlags(split_dataset='/a', scripts=str(tmp_path))
  with pytest.raises(errors.ConfigError, match='no split_dataset.sh'):
    launch_local.split(values, 2)


def test_more_processes_than_open_files_are_refused(monkeypatch):
  def fails():
    raise OSError(errno.EMFILE, 'Too many open files')

  monkeypatch.setattr(ports.socket, 'socket', fails)
  with pytest.raises(errors.ConfigError, match='400 free .* files .ulimit -n'):
    ports.free(400)


def test_a_split_run_prints_why_a_task_did_not_start(
  tmp_path, monkeypatch, capsys
):
  script = ['bash', '-c', 'echo "ps_0: no port"; exit 3']
  monkeypatch.setattr(launch_local, '_launch', lambda: script)
  monkeypatch.setattr(launch_local, '_network', lambda config: [])
  config = types.SimpleNamespace(text=lambda: '', workspace=str(tmp_path))
  assert launch_local.start(launch.LaunchFlags(), config, []) == 3
  assert capsys.readouterr().err == 'ps_0: no port\n'


@pytest.fixture
def started(tmp_path, monkeypatch):
  """A function: launches two stand-ins for workers here, in experiment `e`."""
  fifo = tmp_path / 'never'
  os.mkfifo(fifo)
  script = tmp_path / 'python'
  script.write_text(
    '#!/usr/bin/env bash\necho "$@"\n[[ $* =~ --task_id=([0-9]+) ]]\n'
    # `launch` refuses a task that ends before it has a PID file.
    'pid=$WORKSPACE/e/worker_${BASH_REMATCH[1]}.pid\n'
    f'[[ -n ${{END:-}} ]] || read -r <>{fifo}\n'
    f'until [[ -s $pid ]]; do read -r -t 0.1 <>{fifo}; done\n'
    'exit "$END"\n'
  )
  script.chmod(0o755)
  monkeypatch.setattr(sys, 'executable', str(script))
  hosts = tuple(f'localhost:{port}' for port in ports.free(2))
  usual = {'hosts': hosts, 'workspace': str(tmp_path), 'experiment': 'e'}

  def launched(**changes):
    return launch.launch(launch.LaunchFlags(**(usual | changes)))

  yield launched
  launched(stop=True, seconds='0')


def test_tasks_are_started_listed_and_stopped(started, tmp_path, capsys):
  assert started(command=TRAIN) == 0
  assert started(status=True) == 0
  assert capsys.readouterr().out.count(': running (process') == 2
  # What was recorded does as well.
  config = tmp_path / 'e' / 'config_dist.sh'
  recorded = {'hosts': (), 'workspace': '', 'config': str(config)}
  assert started(status=True, **recorded) == 0
  assert started(stop=True) == 0
  assert capsys.readouterr().out.count(': stopped worker_') == 2
  assert started(status=True) == 1
  assert not list((tmp_path / 'e').glob('*.pid'))


@pytest.mark.parametrize('code', [0, 3])
def test_with_restarts_the_exit_code_is_that_of_the_run(
  started, monkeypatch, capsys, code
):
  monkeypatch.setenv('END', str(code))
  assert started(command=TRAIN, restart='2') == code
  assert 'restart 1 of 2' not in capsys.readouterr().out


def test_the_log_of_a_task_has_its_command(started, tmp_path, monkeypatch):
  monkeypatch.setenv('END', '0')
  started(command=TRAIN, restart='0')
  log = pathlib.Path(tmp_path / 'e' / 'worker_1.log').read_text()
  assert log.startswith('-m terngrad.cli.main train mnist --max_steps=4 a b')
  assert '--task_id=1' in log


def test_check_asks_the_interpreter_of_the_tasks_with_all_its_gpus(
  tmp_path, monkeypatch, capsys
):
  script = tmp_path / 'python'
  script.write_text(
    '#!/bin/bash\ngpus=${CUDA_VISIBLE_DEVICES-8}\n'
    'echo "terngrad 1, TensorFlow 2, Python 3; ${gpus:-0} GPUs"\n'
  )
  script.chmod(0o755)
  monkeypatch.setattr(sys, 'executable', str(script))
  monkeypatch.setenv('PYTHON', '/nowhere')
  monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  values = launch.LaunchFlags(
    hosts=('localhost',), workspace=str(tmp_path), check=True, command=TRAIN
  )
  assert launch.launch(values) == 0
  assert (
    'worker_0 on localhost: terngrad 1, TensorFlow 2, Python 3; 8 GPUs'
    in capsys.readouterr().out
  )


def test_the_command_that_is_printed_names_the_experiment(started, capsys):
  assert started(command=TRAIN) == 0
  (line,) = (
    line
    for line in capsys.readouterr().out.splitlines()
    if line.startswith('experiment e; its state: ')
  )
  words = shlex.split(line.partition('its state: ')[2])
  assert words[-2:] == ['--experiment=e', '--status']


def test_a_folder_may_begin_with_a_tilde(monkeypatch):
  monkeypatch.setenv('HOME', '/my home')
  assert launch_local._absolute('~/data') == '/my home/data'
