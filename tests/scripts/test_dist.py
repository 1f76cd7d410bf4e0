"""scripts/run_dist.sh, stop_dist.sh and kill_local.sh, with a fake ssh."""

import os
import shlex
import signal
import subprocess

import pytest

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


def test_other_hosts_are_reached_by_ssh_that_asks_nothing(cluster):
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


@pytest.mark.parametrize(
  ('hosts', 'words', 'message'),
  [
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=()\n', {}, 'WORKER_HOSTS: one or more'),
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=(b:1)\n', {}, 'WORKER_DEVICES: one a worke'),
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=(a:1 b:1)\n', {}, 'received: a:1 again'),
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=(b:1 c:0)\n', {}, 'received: c:0'),
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=(b:1 c:65536)\n', {}, 'received: c:65536'),
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=(b:1 c)\n', {}, 'received: c\n'),
    ("PS_HOSTS=('-oProxyCommand=x:1')\nWORKER_HOSTS=(b:1 c:1)\n", {}, '-oPr'),
    ("PS_HOSTS=('a b:1')\nWORKER_HOSTS=(b:1 c:1)\n", {}, 'received: a b:1'),
    ("PS_HOSTS=('a,b:1')\nWORKER_HOSTS=(b:1 c:1)\n", {}, 'received: a,b:1'),
    (
      "PS_HOSTS=('a:x[$(touch executed)]')\nWORKER_HOSTS=(b:1 c:1)\n",
      {},
      'a:x[',
    ),
    ('PS_HOSTS=(localhost:1)\nWORKER_HOSTS=(b:1 c:1)\n', {}, 'localhost only'),
    ('PS_HOSTS=(a:1\n', {}, "line 2: WORKER_DEVICES=('' 0,1)"),
    (HOSTS, {'ALLOW_INSECURE_NETWORK': 'false'}, 'docs/security.md'),
    (HOSTS, {'ALLOW_INSECURE_NETWORK': 'yes'}, 'received: yes'),
    (LOCAL, {'WORKER_DEVICES': "(0 '$(touch executed)')"}, 'received: $(touch'),
    (LOCAL, {'WORKER_DEVICES': '(0 1 2)'}, 'received: 3'),
    (LOCAL, {'DATA_DIR': '(/a)'}, 'DATA_DIR: one a worker, 2'),
    (LOCAL, {'DATA_DIR': '(/a b)'}, "received: 'b'"),
    (LOCAL, {'DATA_DIR': '(/a $(touch executed))'}, 'received: line 4'),
    (LOCAL, {'WORKSPACE': '$(touch executed)'}, 'received: line 7'),
    (LOCAL, {'WORKSPACE': '"$HOME'}, 'received: line 7'),
    (LOCAL, {'WORKSPACE': '`touch executed`'}, 'received: line 7'),
    (LOCAL, {'WORKSPACE': '/a; touch executed'}, 'received: line 7'),
    (LOCAL, {'WORKSPACE': "/a'b'(c)"}, 'expected: a space after a word'),
    (LOCAL, {'WORKSPACE': '(/a)'}, 'expected: a list for one of'),
    (LOCAL, {'WORKSPACE': ''}, 'received: line 7'),
    (LOCAL, {'WORKSPACE': "'/a\x1b[2J'"}, 'without control characters'),
    (LOCAL, {'WORKSPACE': "'~user/a'"}, 'a path from / or ~/'),
    (LOCAL, {'WORKER_SCRIPT': '../x'}, "received: '../x'"),
    (LOCAL, {'WORKER_SCRIPT': "''"}, "received: ''"),
    (LOCAL, {'PATH': '/tmp'}, 'received: line 9: PATH=/tmp'),
    (LOCAL, {'touch executed\nA': 'b'}, 'received: line 9: touch executed'),
    (LOCAL + 'PS_HOSTS=(a:1)\n', {}, 'PS_HOSTS again'),
    ('PS_HOSTS=(a:1)\n', {}, 'expected: WORKER_HOSTS'),
  ],
)
def test_bad_configuration_is_refused_before_any_host_is_reached(
  cluster, tmp_path, hosts, words, message
):
  cluster.write(hosts, **words)
  status, out, err = cluster.run()
  assert (status, out) == (2, '')
  assert message in err
  assert 'remedy:' in err
  assert cluster.ssh_calls() == cluster.project.calls() == []
  assert list(cluster.workspace.iterdir()) == []
  assert not list(tmp_path.rglob('executed'))


def test_configuration_of_the_project_is_read(project):
  status, out, err = project.run('run_dist.sh', '--dry_run', '--experiment=e')
  assert (status, err) == (0, '')
  assert len(out.splitlines()) == 3


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


def test_nothing_starts_where_one_task_cannot(cluster):
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


def test_others_are_stopped_where_a_task_does_not_start(cluster):
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
    f'expected it not to run yet, received process {pids["worker_1"]}' in err
  )
  assert len(cluster.project.calls()) == 3


def test_status_tells_each_task(cluster):
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


@pytest.mark.parametrize('hosts', [LOCAL, HOSTS])
def test_stop_ends_this_experiment_and_no_other(cluster, hosts):
  cluster.write(hosts)
  first = cluster.started()
  assert cluster.run('--experiment=f')[0] == 0
  second = [int(cluster.project.heard()) for _ in range(3)]
  status, out, err = cluster.run('--experiment=e', script='stop_dist.sh')
  assert (status, err) == (0, '')
  assert 'stopped worker_1' in out
  assert not any(map(runs, first.values()))
  assert all(map(runs, second))
  assert not list((cluster.workspace / 'e').glob('*.pid'))
  # The other one is the latest.
  assert cluster.run(script='stop_dist.sh')[0] == 0
  assert not any(map(runs, second))


def test_stop_goes_on_after_a_host_that_cannot_be_reached(cluster):
  cluster.write(HOSTS)
  pids = cluster.started()
  cluster.write(HOSTS.replace('one', 'down'))
  status, out, _ = cluster.run(script='stop_dist.sh')
  assert status == 1
  assert 'received: no route to down' in out
  assert not any(map(runs, pids.values()))


def test_recorded_configuration_stops_what_it_started(cluster):
  pids = cluster.started()
  cluster.config = cluster.workspace / 'e' / 'config_dist.sh'
  assert cluster.run('--status')[0] == 0
  assert cluster.run(script='stop_dist.sh')[0] == 0
  assert not any(map(runs, pids.values()))


def test_stop_leaves_a_process_that_took_the_number(cluster):
  pids = cluster.started()
  stranger = subprocess.Popen(['cat'], stdin=subprocess.PIPE)
  file = cluster.workspace / 'e' / 'worker_0.pid'
  original = file.read_text()
  file.write_text(original.replace(str(pids['worker_0']), str(stranger.pid), 1))
  folder = str(cluster.workspace / 'e')
  status, out, err = cluster.run(folder, script='kill_local.sh')
  assert (status, err) == (0, '')
  assert 'worker_0' not in out
  assert stranger.poll() is None
  assert runs(pids['worker_0'])
  stranger.communicate(timeout=60)
  file.write_text(original)


@pytest.mark.parametrize(
  'text', ['', '1', '-1 2 a', '0 0 0', '1 $(touch executed) a', 'a\nb', '1 1 a']
)
def test_pid_files_of_others_harm_nobody(cluster, tmp_path, text):
  folder = cluster.workspace / 'e'
  folder.mkdir()
  (folder / 'worker_0.pid').write_text(text)
  status, out, err = cluster.run(str(folder), script='kill_local.sh')
  assert (status, out, err) == (0, f'nothing of {folder} runs here\n', '')
  assert not list(tmp_path.rglob('executed'))


def test_stop_ends_what_a_task_started_and_kills_what_stays(cluster):
  cluster.worker = cluster.script(
    'worker script', f'trap "" TERM; ({STAYS}) & wait'
  )
  assert cluster.run('--experiment=e')[0] == 0
  for _ in range(3):
    cluster.project.heard()
  leader = int(
    (cluster.workspace / 'e' / 'worker_0.pid').read_text().split()[0]
  )
  with open(f'/proc/{leader}/task/{leader}/children') as file:
    (child,) = map(int, file.read().split())
  status, out, _ = cluster.run(
    '--seconds=1', '--experiment=e', script='stop_dist.sh'
  )
  assert status == 0
  assert 'killed, because they had not ended after 1 s' in out
  assert not runs(leader)
  assert not runs(child)


@pytest.mark.parametrize(
  ('script', 'argument', 'message'),
  [
    ('run_dist.sh', '--statu', 'unknown argument: --statu'),
    ('run_dist.sh', '--experiment=../x', 'no name of an experiment'),
    ('run_dist.sh', '--experiment=', 'no name of an experiment'),
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
