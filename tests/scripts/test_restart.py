"""scripts/run_dist.sh --restart, and equal processes without servers."""

import os
import signal

import pytest

from terngrad.cluster import watchdog
from tests import endings
from tests.scripts import launcher

# As many seconds to settle as no machine is slow.
LONG = 600
EQUAL = 'PS_HOSTS=()\nWORKER_HOSTS=(localhost:2224 127.0.0.2:2226)\n'
SURVIVOR = f'exit {watchdog.LOST}'
STAYS = 'echo $$ >"$fifo"; read -r <>"$fifo.never"'


@pytest.fixture
def equal(cluster):
  """Writes two equal processes: what each does the first time, and later."""

  def write(first, second, later='exit 0'):
    cluster.worker = cluster.script(
      'worker script',
      f'record "$@"\nmark="{cluster.folder}/came $4"\n'
      f'if [[ -e $mark ]]; then {later}; fi\n'
      f'echo >"$mark"\nif [[ $4 == 0 ]]; then {first}; else {second}; fi',
    )
    cluster.write(EQUAL)
    cluster.project.settle(LONG)
    return cluster

  return write


def test_equal_processes_get_no_servers(cluster):
  cluster.write(EQUAL)
  status, _, err = cluster.run('--experiment=e', '--', '--seed=7')
  assert (status, err) == (0, '')
  for _ in range(2):
    cluster.project.heard()
  hosts = 'localhost:2224,127.0.0.2:2226'
  data = [str(path) for path in cluster.data]
  assert sorted(cluster.project.calls()) == [
    ['', hosts, 'worker', '0', '', data[0], 'e']
    + ['--allow_insecure_network', '--seed=7'],
    ['', hosts, 'worker', '1', '0,1', data[1], 'e']
    + ['--allow_insecure_network', '--seed=7'],
  ]
  status, out, _ = cluster.run('--status')
  assert (status, out.count('running')) == (0, 2)
  status, out, _ = cluster.run(script='stop_dist.sh')
  assert (status, out.count('stopped')) == (0, 2)


@pytest.mark.parametrize('code', [0, watchdog.LOST])
def test_a_killed_process_restarts_all_tasks(equal, code):
  # The other may have seen it, or come to its end.
  cluster = equal(f'exit {code}', 'kill -KILL $$')
  status, out, err = cluster.run('--experiment=e', '--restart=2')
  assert (status, err) == (0, '')
  assert (
    'worker_1 on 127.0.0.2: ended (exit code 137); restart 1 of 2: all tasks '
    'continue from the last checkpoint'
    in out
    or 'worker_0 on localhost: ended (exit code 75); restart 1 of 2' in out
  )
  assert 'all tasks are done' in out
  tasks = [call[3] for call in cluster.project.calls()]
  assert sorted(tasks) == ['0', '0', '1', '1']


def test_a_restart_deletes_no_checkpoints(equal):
  cluster = equal('exit 75', 'kill -KILL $$')
  arguments = ('--experiment=e', '--restart=1', '--', '--overwrite')
  status, _, err = cluster.run(*arguments)
  assert (status, err) == (0, '')
  ends = [call[-1] for call in cluster.project.calls()]
  assert ends == ['--overwrite'] * 2 + ['--overwrite=false'] * 2


def test_all_are_stopped_before_any_is_started_again(equal):
  # The first one does not notice by itself.
  cluster = equal(
    f"trap 'record ended; exit 143' TERM; {STAYS}",
    'kill -KILL $$',
  )
  cluster.project.settle(0)
  status, _, err = cluster.run('--experiment=e', '--restart=1')
  assert (status, err) == (0, '')
  third = cluster.project.calls()[2]
  assert third == ['ended']


def test_restarts_are_limited(equal):
  cluster = equal(SURVIVOR, 'kill -KILL $$', later=SURVIVOR)
  status, out, err = cluster.run('--experiment=e', '--restart=1')
  assert (status, err) == (watchdog.LOST, '')
  assert 'no restarts are left, of 1' in out
  assert len(cluster.project.calls()) == 4


def test_a_process_that_fails_is_not_restarted(equal):
  # The one that lost it comes first in every look.
  cluster = equal(SURVIVOR, 'exit 3')
  status, out, err = cluster.run('--experiment=e', '--restart=5')
  assert (status, err) == (3, '')
  assert 'worker_1 on 127.0.0.2: ended (exit code 3)' in out
  assert len(cluster.project.calls()) == 2


@pytest.mark.parametrize('late', ['task', 'exit code'])
def test_a_failure_decides_even_if_another_task_ends_first(equal, late):
  # Until the loss was seen the task stays, or the shell does that waits for it
  # and leaves its exit code.
  cluster = equal(
    SURVIVOR, 'echo $PPID >"$fifo"; read -r <>"$fifo.never"; exit 3'
  )
  watcher = cluster.start('--experiment=e', '--restart=5')
  waiter = int(cluster.project.heard())
  launcher.read_until(watcher, 'experiment e')
  # Open to read and to write, a pipe waits for no other end.
  with open(f'{cluster.project.fifo}.never', 'r+b', buffering=0) as go_on:
    if late == 'exit code':
      os.kill(waiter, signal.SIGSTOP)
      go_on.write(b'\n')
    launcher.read_until(watcher, f'(exit code 75); waiting up to {LONG} s')
    if late == 'exit code':
      os.kill(waiter, signal.SIGCONT)
    else:
      go_on.write(b'\n')
    out, err = watcher.communicate(timeout=cluster.project.TIMEOUT)
  assert (watcher.returncode, err) == (3, '')
  assert 'worker_1 on 127.0.0.2: ended (exit code 3)' in out
  assert len(cluster.project.calls()) == 2


def test_a_failure_ends_the_others(equal):
  cluster = equal(STAYS, 'exit 1')
  status, out, _ = cluster.run('--experiment=e', '--restart=5')
  assert status == 1
  assert 'stopping the others' in out
  assert 'stopped worker_0' in out
  assert endings.has_ended(int(cluster.project.heard()))


def test_stopped_tasks_stay_stopped(equal):
  cluster = equal(STAYS, STAYS)
  watcher = cluster.start('--experiment=e', '--restart=5')
  for _ in range(2):
    cluster.project.heard()
  # The PID files are complete when it says so.
  launcher.read_until(watcher, 'experiment e')
  assert cluster.run(script='stop_dist.sh')[0] == 0
  out, err = watcher.communicate(timeout=60)
  assert (watcher.returncode, err) == (143, '')
  assert 'somebody stopped it' in out
  assert len(cluster.project.calls()) == 2


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_tasks_with_their_watcher(equal, number):
  cluster = equal(STAYS, STAYS)
  watcher = cluster.start('--experiment=e', '--restart=5')
  pids = [int(cluster.project.heard()) for _ in range(2)]
  launcher.read_until(watcher, 'experiment e')
  watcher.send_signal(number)
  watcher.communicate(timeout=60)
  assert watcher.returncode == 128 + number
  assert not any(map(launcher.runs, pids))


def test_a_host_that_cannot_be_reached_ends_the_restarts(cluster):
  cluster.worker = cluster.script(
    'worker script',
    # Nobody reaches the second one's host from now on.
    f'record "$@"\n[[ $4 == 0 ]] || touch "{cluster.folder}/gone"\n{SURVIVOR}',
  )
  cluster.write('PS_HOSTS=()\nWORKER_HOSTS=(one:2222 gone:2222)\n')
  cluster.project.settle(0)
  cluster.project.variables['TERNGRAD_HOST_SECONDS'] = 0
  status, out, _ = cluster.run('--experiment=e', '--restart=5')
  assert status == watchdog.LOST
  assert 'e on gone: expected: ssh -o BatchMode=yes gone to work' in out
  assert 'cannot restart, because of the errors above' in out
  assert len(cluster.project.calls()) == 2


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--restart=x[$(touch executed)]'], 'a whole number, 0 or more'),
    (['--restart='], 'a whole number, 0 or more'),
    (['--restart=1', '--check'], 'expected: --restart without --check'),
  ],
)
def test_bad_restarts_are_refused(cluster, tmp_path, arguments, message):
  status, out, err = cluster.run(*arguments)
  assert (status, out) == (2, '')
  assert message in err
  assert cluster.project.calls() == []
  assert not list(tmp_path.rglob('executed'))
