"""scripts/stop_dist.sh and kill_local.sh, with a fake ssh."""

import os
import signal
import subprocess

import pytest

from tests import endings
from tests.scripts import launcher

HOSTS, LOCAL, STAYS = launcher.HOSTS, launcher.LOCAL, launcher.STAYS
runs = launcher.runs


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


def test_stop_wakes_a_task_that_was_stopped(cluster):
  saved = cluster.folder / 'saved'
  cluster.worker = cluster.script(
    'worker script', f'trap \'echo >"{saved}"; exit 143\' TERM\n{STAYS}'
  )
  pids = cluster.started()
  os.kill(pids['worker_1'], signal.SIGSTOP)
  status, out, err = cluster.run('--seconds=30', script='stop_dist.sh')
  assert (status, err) == (0, '')
  assert 'killed' not in out
  assert saved.exists()
  assert not any(map(runs, pids.values()))


def test_stop_leaves_a_process_that_reuses_the_pid(cluster):
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
def test_invalid_pid_files_end_no_process(cluster, tmp_path, text):
  folder = cluster.workspace / 'e'
  folder.mkdir()
  (folder / 'worker_0.pid').write_text(text)
  status, out, err = cluster.run(str(folder), script='kill_local.sh')
  line = f'no task of {folder} runs on this host\n'
  assert (status, out, err) == (0, line, '')
  assert not list(tmp_path.rglob('executed'))


def test_stop_ends_child_processes_and_kills_remaining_ones(cluster):
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
  assert 'killed processes that had not ended after 1 s' in out
  assert endings.has_ended(leader)
  assert endings.has_ended(child)
