"""scripts/run_dist.sh --tunnel between hosts that only OpenSSH reaches."""

import contextlib
import os
import pathlib
import shutil
import signal

import pytest

from terngrad.cluster import watchdog
from tests.bin import programs
from tests.exchange import processes
from tests.scripts import launcher
from tests.scripts import sshd
from tests.scripts import test_cluster_runs
from tests.scripts import test_single

pytestmark = [
  pytest.mark.cluster,
  pytest.mark.slow,
  pytest.mark.skipif(
    not sshd.program(), reason='no sshd (openssh-server, TERNGRAD_TEST_SSHD)'
  ),
  pytest.mark.skipif(not shutil.which('ssh'), reason='no ssh'),
  pytest.mark.skipif(
    not test_single.can_unshare(), reason='no user namespaces, or no ip'
  ),
]
data_dir = test_cluster_runs.data_dir
workspace = test_cluster_runs.workspace
NO_FORWARDS = 'AllowTcpForwarding no\n'


def addresses(*names):
  """The same names with ports that nobody uses here."""
  found = processes.addresses(len(names))
  return [
    f'{name}:{address.rpartition(":")[2]}'
    for name, address in zip(names, found, strict=True)
  ]


@pytest.fixture
def idle_cluster(cluster, tmp_path):
  """A function: a server on a, workers on b and c, that do nothing."""
  with contextlib.ExitStack() as stack:

    def make(**options):
      folder = tmp_path / 'hosts'
      folder.mkdir()
      path = stack.enter_context(sshd.hosts(folder, **options))
      cluster.ssh = pathlib.Path(path.partition(':')[0]) / 'ssh'
      ps, *workers = addresses('a', 'b', 'c')
      hosts = f'PS_HOSTS=({ps})\nWORKER_HOSTS=({" ".join(workers)})\n'
      cluster.write(hosts, ALLOW_INSECURE_NETWORK='false')
      return cluster, folder

    yield make


def wait_for_servers(folder):
  """Waits: a server ends by itself, a moment after its client."""
  pids = [pid for host in 'abc' for pid in sshd.servers(folder, host)]
  test_cluster_runs.wait_until(lambda: not any(map(launcher.runs, pids)))


def test_a_server_and_two_workers_train_through_ssh(
  data_dir, workspace, tmp_path
):
  ps, chief, worker = addresses('a', 'a', 'b')
  config = tmp_path / 'config'
  config.write_text(
    f'PS_HOSTS=({ps})\nWORKER_HOSTS=({chief} {worker})\n'
    f"WORKER_DEVICES=('' '')\nDATA_DIR=('{data_dir}' '{data_dir}')\n"
    f"WORKSPACE='{workspace}'\nWORKER_SCRIPT=run_single_worker_cifarnet.sh\n"
    'PS_SCRIPT=run_single_ps_cifar10.sh\nALLOW_INSECURE_NETWORK=false\n'
  )
  with sshd.hosts(tmp_path, a='', b='') as path:
    status, out, err = test_cluster_runs.run(
      'run_dist.sh',
      *(f'--config={config}', '--experiment=e', '--tunnel', '--'),
      *('--grad_bits=1', '--clip_factor=2.5', '--batch_size=4'),
      *('--max_steps=4', '--save_iter=2'),
      PATH=path,
    )
  logs = {path.name: path.read_text() for path in workspace.rglob('*.log')}
  assert (status, err) == (0, ''), (out, logs)
  assert 'stopped tunnel_a' in out
  assert programs.checkpoint_steps(workspace / 'e' / 'worker_0')[-1] == 4


def test_a_session_that_ends_is_a_loss(idle_cluster):
  cluster, folder = idle_cluster(a='', b='', c='')
  cluster.project.settle(0)
  with cluster.start('--experiment=e', '--tunnel') as watcher:
    try:
      tasks = [int(cluster.project.heard()) for _ in range(3)]
      launcher.read_until(watcher, 'experiment e')
      for pid in filter(launcher.runs, sshd.servers(folder, 'b')):
        os.kill(pid, signal.SIGTERM)
      out, _ = watcher.communicate(timeout=cluster.project.TIMEOUT)
    finally:
      watcher.terminate()
  assert 'tunnel to b: ended' in out
  assert watcher.returncode == watchdog.LOST
  assert not any(map(launcher.runs, tasks))
  wait_for_servers(folder)


def test_a_host_that_forwards_nothing_is_named_and_no_task_starts(idle_cluster):
  cluster, folder = idle_cluster(a='', b=NO_FORWARDS, c='')
  status, out, err = cluster.run('--experiment=e', '--tunnel')
  assert status == 1
  assert 'tunnel to b: expected: the forwards' in out
  assert 'remote port forwarding failed' in out
  assert 'allow forwarding in its sshd (AllowTcpForwarding)' in out
  assert 'a task did not start; stopping the others' in err
  assert cluster.project.calls() == []
  wait_for_servers(folder)


def test_a_check_names_a_host_that_forwards_nothing(idle_cluster):
  cluster, folder = idle_cluster(a='', b=NO_FORWARDS, c='')
  launcher.give_interpreter(cluster.project)
  status, _, err = cluster.run('--check', '--tunnel')
  assert status == 2
  assert 'tunnel to c: can be opened' in err
  assert 'tunnel to b: expected: the forwards' in err
  assert 'remote port forwarding failed' in err
  assert cluster.project.calls() == []
  wait_for_servers(folder)


def test_a_host_whose_key_is_not_known_is_named_and_none_is_asked(idle_cluster):
  cluster, folder = idle_cluster(a='', b='', c='')
  known = folder / 'known_hosts'
  known.write_text(known.read_text().replace('a,b,c', 'a,c'))
  status, _, err = cluster.run('--experiment=e', '--tunnel')
  assert status == 2
  assert 'worker_0 on b: expected: ssh -o BatchMode=yes b to work' in err
  assert 'Host key verification failed' in err
  assert 'worker_1 on c: can start' in err
  assert cluster.project.calls() == []
