"""scripts/run_dist.sh, with a fake ssh; what all its scripts have in common."""

import os
import re
import shlex
import signal

import pytest

from tests import endings
from tests.scripts import launcher

HOSTS, LOCAL, STAYS = launcher.HOSTS, launcher.LOCAL, launcher.STAYS
runs = launcher.runs
# Each stands for one way in which a shell may take a value for code.
NASTY = [
  'a b  c',
  'a"b',
  '$(touch executed)',
  '`touch executed`',
  '; touch executed',
  '& touch executed #',
  '*',
  '-n',
  'a\\nb',
  '!!',
  '${IFS}\\',
]


def test_tasks_get_the_arguments_of_2017(cluster):
  cluster.write(LOCAL, ALLOW_INSECURE_NETWORK='false')
  status, _, err = cluster.run('--experiment=e', '--', '--grad_bits=1', 'a b')
  assert (status, err) == (0, '')
  for _ in range(3):
    cluster.project.heard()
  hosts = ['localhost:2222', '[::1]:2224,127.0.0.2:2226']
  data = [str(path) for path in cluster.data]
  assert sorted(cluster.project.calls()) == [
    [*hosts, 'ps', '0', 'e'],
    [*hosts, 'worker', '0', '', data[0], 'e', '--grad_bits=1', 'a b'],
    [*hosts, 'worker', '1', '0,1', data[1], 'e', '--grad_bits=1', 'a b'],
  ]
  assert cluster.ssh_calls() == []


def test_other_hosts_are_reached_by_ssh_without_prompts(cluster):
  cluster.write(HOSTS)
  cluster.started()
  for call in cluster.ssh_calls():
    options, host = call[: call.index('--')], call[call.index('--') + 1]
    assert 'BatchMode=yes' in options
    assert 'ConnectTimeout=10' in options
    assert host in ('one', 'two', 'three.example')
    # What a login shell sees holds no value.
    assert call[call.index('--') + 2 :] == ['bash', '-s']
  assert all('--allow_insecure_network' in c for c in cluster.project.calls())


@pytest.mark.parametrize('hosts', [LOCAL, HOSTS])
def test_values_arrive_as_they_are(cluster, tmp_path, hosts):
  cluster.workspace = tmp_path / ' '.join(NASTY)
  cluster.workspace.mkdir()
  cluster.data[0] = cluster.workspace
  cluster.write(hosts)
  cluster.started('--', *NASTY)
  for call in cluster.project.calls():
    if call[2] == 'worker':
      assert call[-len(NASTY) :] == NASTY
      assert call[5] == str(cluster.data[int(call[3])])
  assert not list(tmp_path.rglob('executed'))


def test_home_is_that_of_the_host(cluster):
  (cluster.home / 'results').mkdir()
  cluster.write(LOCAL, WORKSPACE='~/results')
  status, _, err = cluster.run('--experiment=e')
  assert (status, err) == (0, '')
  cluster.workspace = cluster.home / 'results'
  assert (cluster.workspace / 'e' / 'worker_0.pid').exists()


def test_a_task_that_could_not_be_stopped_is_killed(cluster):
  folder = cluster.workspace / 'e'
  folder.mkdir()
  # As on a full disk.
  (folder / 'worker_0.pid').symlink_to('/dev/full')
  status, out, _ = cluster.run('--experiment=e')
  assert status == 1
  found = re.search(r'killed the task \(process ([0-9]+)\): expected to w', out)
  assert endings.has_ended(int(found[1]))
  assert not (folder / 'worker_0.pid').exists()


def test_dry_run_prints_commands_and_reaches_no_host(cluster):
  cluster.write(HOSTS)
  status, out, err = cluster.run('--dry_run', '--experiment=e', '--', '$(x)')
  assert (status, err) == (0, '')
  ps, worker, _ = (shlex.split(line) for line in out.splitlines())
  hosts = ['one:2222', 'two:2222,three.example:2222']
  assert ps == (
    ['ps_0', 'on', 'one:', str(cluster.ps), *hosts, 'ps', '0', 'e']
    + ['--allow_insecure_network']
  )
  assert worker[-2:] == ['--allow_insecure_network', '$(x)']
  assert cluster.ssh_calls() == cluster.project.calls() == []


def test_nothing_starts_if_one_task_cannot(cluster):
  cluster.data[1].rmdir()
  cluster.write(LOCAL)
  status, _, err = cluster.run()
  assert status == 2
  assert (
    f'worker_1 on 127.0.0.2: DATA_DIR: expected a folder, received '
    f'{cluster.data[1]}' in err
  )
  assert 'nothing was started' in err
  assert cluster.project.calls() == []
  assert list(cluster.workspace.iterdir()) == []


def test_host_that_cannot_be_reached_is_named_and_nothing_starts(cluster):
  cluster.write(HOSTS.replace('two', 'down.example'))
  status, _, err = cluster.run()
  assert status == 2
  assert 'worker_0 on down.example: expected: ssh -o BatchMode=yes down' in err
  assert 'worker_0 on down.example: received: no route to down.example' in err
  assert 'worker_1 on three.example: can start' in err
  assert cluster.project.calls() == []


def test_others_are_stopped_if_a_task_does_not_start(cluster):
  # ssh reaches it once only.
  cluster.write(HOSTS.replace('three.example', 'late'))
  status, out, err = cluster.run('--experiment=e')
  assert status == 1
  assert 'a task did not start; stopping the others' in err
  assert 'stopped ps_0' in out
  assert 'stopped worker_0' in out
  assert not list((cluster.workspace / 'e').glob('*.pid'))


def test_experiment_that_runs_is_not_started_again(cluster):
  pids = cluster.started()
  status, _, err = cluster.run('--experiment=e')
  assert status == 2
  assert (
    f'expected a task that is not running, received process {pids["worker_1"]}'
    in err
  )
  assert len(cluster.project.calls()) == 3


def test_status_shows_each_task(cluster):
  pids = cluster.started()
  status, out, _ = cluster.run('--status')
  assert status == 0
  assert out == (
    f'ps_0 on localhost: running (process {pids["ps_0"]})\n'
    f'worker_0 on ::1: running (process {pids["worker_0"]})\n'
    f'worker_1 on 127.0.0.2: running (process {pids["worker_1"]})\n'
  )
  os.kill(pids['worker_1'], signal.SIGKILL)
  while runs(pids['worker_1']):
    pass
  status, out, _ = cluster.run('--status')
  assert status == 1
  assert 'worker_1 on 127.0.0.2: ended (exit code 137)\n' in out


def test_status_without_experiment_is_refused(cluster):
  status, _, err = cluster.run('--status')
  assert status == 2
  assert 'give --experiment=ID' in err


@pytest.mark.parametrize(
  ('script', 'argument', 'message'),
  [
    ('run_dist.sh', '--statu', 'unknown argument: --statu'),
    ('run_dist.sh', '--experiment=../x', 'invalid name of an experiment'),
    ('run_dist.sh', '--experiment=', 'invalid name of an experiment'),
    ('run_dist.sh', '--config=/nowhere', 'give --config=FILE'),
    ('stop_dist.sh', '--seconds=x[$(touch executed)]', 'a whole number'),
    ('stop_dist.sh', 'all', 'unknown argument: all'),
    ('kill_local.sh', '/nowhere', 'give WORKSPACE/ID'),
    ('kill_local.sh', '--all', 'unknown argument: --all'),
  ],
)
def test_bad_arguments_are_refused(
  cluster, tmp_path, script, argument, message
):
  status, out, err = cluster.run(argument, script=script)
  assert (status, out) == (2, '')
  assert message in err
  assert not list(tmp_path.rglob('executed'))


@pytest.mark.parametrize(
  'script',
  [
    'run_dist.sh',
    'stop_dist.sh',
    'kill_local.sh',
    'run_dist_cifar10.sh',
    'run_single_ps_cifar10.sh',
    'run_single_ps_imagenet.sh',
    'run_single_worker_alexnet.sh',
    'run_single_worker_cifarnet.sh',
  ],
)
def test_help_is_printed(project, script):
  status, out, err = project.run(script, '--help')
  assert (status, err) == (0, '')
  assert f'scripts/{script}' in out.splitlines()[0]


def test_a_folder_of_the_user_hides_no_module(project, tmp_path):
  # It is where scripts are started here.
  (tmp_path / 'logging').mkdir()
  (tmp_path / 'logging' / '__init__.py').touch()
  status, out, err = project.run('run_dist.sh', '--dry_run')
  assert (status, err) == (0, ''), err
  assert len(out.splitlines()) == 3


@pytest.mark.parametrize('script', ['run_dist.sh', 'stop_dist.sh'])
def test_an_empty_name_of_a_file_is_refused(project, script):
  status, out, err = project.run(script, '--config=')
  assert (status, out) == (2, '')
  assert 'no configuration' in err


def test_without_a_home_in_the_environment_commands_are_printed(project):
  start = project.root / 'scripts' / 'run_dist.sh'
  start.write_text(start.read_text().replace('set -e', 'unset HOME\nset -e', 1))
  status, _, err = project.run('run_dist.sh', '--dry_run')
  assert (status, err) == (0, '')


def test_without_ssh_each_task_says_so(cluster, monkeypatch):
  cluster.write(HOSTS)
  cluster.ssh.unlink()
  needed = cluster.folder / 'few'
  needed.mkdir()
  for name in ('bash', 'dirname', 'env'):
    (needed / name).symlink_to(f'/usr/bin/{name}')
  monkeypatch.setenv('PATH', str(needed))
  for arguments in (['--experiment=e'], ['--check']):
    status, _, err = cluster.run(*arguments)
    assert status == 2
    assert 'worker_0 on two: cannot start ssh here: No such file' in err
  status, out, err = cluster.run('--experiment=e', '--status')
  assert (status, err) == (1, '')
  assert out.count('cannot start ssh here') == 3
