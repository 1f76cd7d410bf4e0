"""scripts/run_dist.sh --tunnel, with a fake ssh that makes no connection."""

import os
import re
import shlex
import shutil
import signal
import subprocess

import pytest

from terngrad.cluster import watchdog
from tests.scripts import launcher

HOSTS = 'PS_HOSTS=(one:2222)\nWORKER_HOSTS=(two:2224 three.example:2226)\n'
STAYS = 'echo $$ >"$fifo"; read -r <>"$fifo.never"'
# What stands for the part of ssh that stays in the background.
TUNNEL = r"""
all=" $* "
while [[ $1 != -- ]]; do
  [[ $1 != -S ]] || socket=$2
  shift
done
case $all in
  *' -O check '*)
    echo "Master running (pid=$(<"$socket"))" >&2
    exit ;;
  *' -f '*)
    if [[ $2 == closed.example ]]; then
      echo 'remote port forwarding failed for listen port 2222' >&2
      exit 255
    fi
    # It has a session of its own before this one ends, as ssh has.
    read -r pid < <(setsid -- bash -c 'echo $$; exec >&-; read -r <>"$1"' \
      bash "$fifo.never")
    echo "$pid" >"$socket"
    echo "$pid" >>"$log.tunnels"
    exit ;;
esac
set -- -- "${@:2}"
"""


@pytest.fixture
def tunnelled(cluster):
  """Writes hosts, tasks that do `body`, and an ssh that makes tunnels."""
  text = cluster.ssh.read_text()
  start = text.index('while [[ $1 != --')
  cluster.ssh.write_text(text[:start] + TUNNEL + text[start:])

  def write(body, hosts=HOSTS):
    cluster.worker = cluster.script('worker script', f'record "$@"\n{body}')
    cluster.ps = cluster.script('ps', f'record "$@"\n{body}')
    cluster.write(hosts, ALLOW_INSECURE_NETWORK='false')
    return cluster

  return write


def tunnels(cluster):
  """{host: arguments of the ssh that makes its tunnel}."""
  calls = [call for call in cluster.ssh_calls() if '-f' in call]
  return {call[call.index('--') + 1]: call for call in calls}


def pids(cluster):
  path = cluster.folder / 'calls.tunnels'
  return [int(line) for line in path.read_text().split()]


def pairs(call, flag):
  return [call[i + 1] for i, word in enumerate(call) if word == flag]


def forward(*ports):
  return [f'127.0.0.1:{port}:127.0.0.1:{port}' for port in ports]


@pytest.mark.slow
def test_each_host_gets_the_ports_of_all_others(tunnelled):
  cluster = tunnelled('exit 0')
  status, _, err = cluster.run('--experiment=e', '--tunnel')
  assert (status, err) == (0, '')
  found = tunnels(cluster)
  assert {
    host: (pairs(call, '-L'), pairs(call, '-R')) for host, call in found.items()
  } == {
    'one': (forward(2222), forward(2224, 2226)),
    'two': (forward(2224), forward(2222, 2226)),
    'three.example': (forward(2226), forward(2222, 2224)),
  }
  for host, call in found.items():
    options = pairs(call, '-o')
    for option in (
      'BatchMode=yes',
      'ExitOnForwardFailure=yes',
      'ServerAliveInterval=5',
    ):
      assert option in options
    assert {'-N', '-f'} < set(call)
    # No command, which a shell would read.
    assert call[call.index('--') :] == ['--', host]
  assert not any(map(launcher.runs, pids(cluster)))


def test_tasks_use_loopback_addresses_without_insecure_network(tunnelled):
  cluster = tunnelled('exit 0')
  assert cluster.run('--experiment=e', '--tunnel', '--', '--seed=7')[0] == 0
  hosts = ['127.0.0.1:2222', '127.0.0.1:2224,127.0.0.1:2226']
  data = [str(path) for path in cluster.data]
  assert sorted(cluster.project.calls()) == [
    [*hosts, 'ps', '0', 'e'],
    [*hosts, 'worker', '0', '', data[0], 'e', '--seed=7'],
    [*hosts, 'worker', '1', '0,1', data[1], 'e', '--seed=7'],
  ]


def test_without_a_tunnel_these_hosts_are_refused(tunnelled):
  cluster = tunnelled('exit 0')
  status, _, err = cluster.run()
  assert status == 2
  assert 'ALLOW_INSECURE_NETWORK=true for hosts other than localhost' in err
  assert cluster.ssh_calls() == []


def test_tasks_of_this_machine_need_no_tunnel(tunnelled):
  hosts = 'PS_HOSTS=(localhost:2222)\nWORKER_HOSTS=(two:2224 two:2226)\n'
  cluster = tunnelled('exit 0', hosts)
  assert cluster.run('--experiment=e', '--tunnel')[0] == 0
  (call,) = tunnels(cluster).values()
  assert pairs(call, '-L') == forward(2224, 2226)
  assert pairs(call, '-R') == forward(2222)


@pytest.mark.parametrize(
  'end',
  ['stop_dist.sh', pytest.param('kill_local.sh', marks=pytest.mark.slow)],
)
def test_tunnels_are_shown_and_end_with_the_tasks(tunnelled, end):
  cluster = tunnelled(STAYS)
  with cluster.start('--experiment=e', '--tunnel') as watcher:
    tasks = [int(cluster.project.heard()) for _ in range(3)]
    launcher.read_until(watcher, 'experiment e')
    status, out, err = cluster.run('--status')
    assert (status, err) == (0, '')
    running = re.findall(r'tunnel to (\S+): running \(process (\d+)\)', out)
    assert {host for host, _ in running} == {'one', 'two', 'three.example'}
    assert sorted(int(pid) for _, pid in running) == sorted(pids(cluster))
    # All tasks are on this machine in truth.
    folder = str(cluster.workspace / 'e')
    words = (folder,) if end == 'kill_local.sh' else ()
    assert cluster.run(*words, script=end)[0] == 0
    watcher.communicate(timeout=cluster.project.TIMEOUT)
  assert watcher.returncode == 143
  assert not any(map(launcher.runs, [*tasks, *pids(cluster)]))


def test_a_failed_tunnel_is_named_and_no_task_starts(tunnelled):
  cluster = tunnelled('exit 0', HOSTS.replace('three', 'closed'))
  status, out, err = cluster.run('--experiment=e', '--tunnel')
  assert status == 1
  assert 'tunnel to closed.example: expected: the forwards' in out
  assert 'received: remote port forwarding failed for listen port 2222' in out
  assert 'a task did not start; stopping the others' in err
  assert cluster.project.calls() == []
  assert len(pids(cluster)) == 2
  assert not any(map(launcher.runs, pids(cluster)))


def test_a_check_opens_every_tunnel_and_leaves_none(tunnelled):
  cluster = tunnelled('exit 0')
  launcher.give_interpreter(cluster.project)
  status, out, err = cluster.run('--check', '--tunnel')
  assert (status, err) == (0, '')
  for host in ('one', 'two', 'three.example'):
    assert f'tunnel to {host}: can be opened\n' in out
  assert out.endswith('all tasks can start\n')
  assert len(pids(cluster)) == 3
  assert not any(map(launcher.runs, pids(cluster)))
  assert cluster.project.calls() == []


def test_a_check_names_a_failed_tunnel(tunnelled):
  cluster = tunnelled('exit 0', HOSTS.replace('three', 'closed'))
  launcher.give_interpreter(cluster.project)
  status, out, err = cluster.run('--check', '--tunnel')
  assert status == 2
  assert 'tunnel to two: can be opened' in err
  assert 'received: remote port forwarding failed for listen port 2222' in err
  assert 'expected: a tunnel to every host' in err
  assert 'all tasks can start' not in out
  assert not any(map(launcher.runs, pids(cluster)))


@pytest.mark.slow
def test_a_restart_makes_new_tunnels(tunnelled):
  cluster = tunnelled(
    f'mark="$WORKSPACE/came $3 $4"; [[ ! -e $mark ]] || exit 0\n'
    f'touch "$mark"; exit {watchdog.LOST}'
  )
  status, out, _ = cluster.run('--experiment=e', '--tunnel', '--restart=1')
  assert status == 0, out
  assert len(set(pids(cluster))) == 6
  assert not any(map(launcher.runs, pids(cluster)))


@pytest.mark.slow
def test_a_tunnel_that_ends_is_a_loss_though_all_tasks_run(tunnelled):
  cluster = tunnelled(STAYS)
  cluster.project.settle(0)
  with cluster.start('--experiment=e', '--tunnel') as watcher:
    try:
      tasks = [int(cluster.project.heard()) for _ in range(3)]
      launcher.read_until(watcher, 'experiment e')
      os.kill(pids(cluster)[1], signal.SIGKILL)
      out, _ = watcher.communicate(timeout=cluster.project.TIMEOUT)
    finally:
      watcher.terminate()
  log = cluster.workspace / 'e' / 'tunnels' / 'tunnel_two.log'
  assert f'tunnel to two: ended, log {log}; stopping the others' in out
  assert watcher.returncode == watchdog.LOST
  assert not any(map(launcher.runs, [*tasks, *pids(cluster)]))


def test_tunnels_are_printed_and_none_is_made(tunnelled):
  cluster = tunnelled('exit 0')
  status, out, err = cluster.run('--tunnel', '--dry_run', '--experiment=e')
  assert (status, err) == (0, '')
  line = shlex.split(out.splitlines()[0])
  assert line[:4] == ['tunnel', 'to', 'one:', 'ssh']
  assert pairs(line, '-R') == forward(2224, 2226)
  assert cluster.ssh_calls() == cluster.project.calls() == []


@pytest.mark.skipif(not shutil.which('ssh'), reason='no ssh')
def test_ssh_understands_what_is_printed(tunnelled):
  cluster = tunnelled('exit 0')
  _, out, _ = cluster.run('--tunnel', '--dry_run', '--experiment=e')
  words = shlex.split(out.splitlines()[0])[4:]
  # -G prints the options and connects to nobody.
  read = subprocess.run(
    [shutil.which('ssh'), '-F', 'none', '-G', *words],
    capture_output=True,
    check=True,
    text=True,
    timeout=60,
  ).stdout.splitlines()
  assert 'exitonforwardfailure yes' in read
  assert 'batchmode yes' in read
  assert 'localforward [127.0.0.1]:2222 [127.0.0.1]:2222' in read
  assert 'remoteforward [127.0.0.1]:2226 [127.0.0.1]:2226' in read


@pytest.mark.parametrize(
  ('hosts', 'message'),
  [
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=(b:2 c:1)\n', 'received: c:1 and a:1'),
    ("PS_HOSTS=('-oProxyCommand=x:1')\nWORKER_HOSTS=(b:2 c:3)\n", '-oProxy'),
    ("PS_HOSTS=('../../a:1')\nWORKER_HOSTS=(b:2 c:3)\n", 'received: ../../a:1'),
    ("PS_HOSTS=('a:1:b')\nWORKER_HOSTS=(b:2 c:3)\n", 'received: a:1:b'),
    (
      "PS_HOSTS=('a$(touch executed):1')\nWORKER_HOSTS=(b:2 c:3)\n",
      'received: a$(touch',
    ),
  ],
)
def test_bad_hosts_are_refused_before_any_tunnel(
  tunnelled, tmp_path, hosts, message
):
  cluster = tunnelled('exit 0', hosts)
  status, out, err = cluster.run('--tunnel')
  assert (status, out) == (2, '')
  assert message in err
  assert cluster.ssh_calls() == cluster.project.calls() == []
  assert not list(tmp_path.rglob('executed'))
