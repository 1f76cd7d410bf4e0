"""The exit code of processes that are started side by side, and their words."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from terngrad import signal_guard
from terngrad.cli import children
from terngrad.cli import command
from terngrad.cluster import watchdog

STAYS = 'read -r <>"$FIFO"'
# Waits until the other one is gone.
LATER = (
  'read -r pid <>"$FIFO"; while kill -0 $pid 2>/dev/null; do '
  'read -r -t 0.05 <>"$FIFO"; done; '
)


def outlives(pid, seconds=20):
  """Whether a process still runs so long after; it may be a zombie."""
  end = time.monotonic() + seconds
  while time.monotonic() < end:
    try:
      text = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except OSError:
      return False
    if text.rpartition(')')[2].split()[0] == 'Z':
      return False
    os.sched_yield()
  return True


@pytest.fixture
def run(tmp_path):
  fifo = tmp_path / 'fifo'
  os.mkfifo(fifo)

  def run(*bodies, advice=''):
    return children.run(
      [
        children.ChildCommand(
          ['bash', '-c', body], f'worker {number}', {'FIFO': str(fifo)}
        )
        for number, body in enumerate(bodies)
      ],
      advice,
    )

  return run


def test_a_failure_of_the_first_command_ends_all(run):
  assert run('exit 2', STAYS) == 2
  assert run('exit 0', 'exit 0', 'exit 3') == 3


def test_after_a_loss_a_failure_of_another_command_decides(run, monkeypatch):
  monkeypatch.setattr(command, 'SETTLE_SECONDS', 600)
  lost = f'echo $$ >"$FIFO"; exit {watchdog.LOST}'
  assert run(lost, f'{LATER} exit 3') == 3
  assert run(f'exit {watchdog.LOST}', 'kill -KILL $$') == 137


def test_a_loss_without_a_failure_ends_the_run(run, monkeypatch):
  monkeypatch.setattr(command, 'SETTLE_SECONDS', 0)
  assert run(f'exit {watchdog.LOST}', STAYS) == watchdog.LOST


@pytest.mark.parametrize(
  ('name', 'remedy'),
  [
    ('SEGV', 'A library crashed. Leave the case out.'),
    ('ABRT', 'A library crashed. Leave the case out.'),
    ('KILL', 'The system kills processes if memory is short'),
    ('ILL', 'compiled for another processor'),
  ],
)
def test_a_killed_command_is_named_with_signal_last_lines_and_remedy(
  run, capfd, name, remedy
):
  lines = 'for i in {1..30}; do echo line $i >&2; done'
  number = signal.Signals[f'SIG{name}'].value
  code = run(f'{lines}; kill -{name} $$', advice='Leave the case out.')
  assert code == 128 + number
  err = capfd.readouterr().err
  # Everything is shown as it comes, and the last lines again.
  assert err.count('line 1\n') == 1 and err.count('line 30\n') == 2
  shown = err[err.index('error: ') :].splitlines()
  assert shown[0] == (
    'error: worker 0: expected exit code 0, received the end by signal '
    f'{number} (SIG{name}) after these lines:'
  )
  assert shown[1:-1] == [f'  line {i}' for i in range(21, 31)]
  assert remedy in shown[-1]


def test_a_killed_command_does_not_leave_the_first_waiting(
  run, monkeypatch, capfd
):
  monkeypatch.setattr(command, 'SETTLE_SECONDS', 0)
  assert run(STAYS, 'kill -SEGV $$') == 128 + signal.SIGSEGV
  message = capfd.readouterr().err
  assert 'worker 1: expected exit code 0' in message
  assert 'SIGSEGV) without a line. A library crashed' in message


def test_a_library_that_crashes_says_where(capfd):
  """The interpreter of the child prints its stack."""
  words = [sys.executable, '-c', 'import ctypes\nctypes.string_at(0)']
  code = children.run([children.ChildCommand(words, 'worker 0')])
  assert code == 128 + signal.SIGSEGV
  message = capfd.readouterr().err.partition('error: ')[2]
  assert 'string_at' in message and 'line 2 in <module>' in message


def test_a_progress_bar_is_drawn_on_a_terminal(tmp_path):
  """The child's standard error is a terminal if that of its parent is one."""
  child = "import os; os.write(2, f'at a terminal: {os.isatty(2)}'.encode())"
  program = (
    'import sys; from terngrad.cli import children; '
    f'children.run([children.ChildCommand([sys.executable, "-c", {child!r}])])'
  )
  for is_terminal in (True, False):
    reader, writer = os.openpty() if is_terminal else os.pipe()
    with open(reader, 'rb', buffering=0) as seen:
      with open(writer, 'wb') as err:
        subprocess.run([sys.executable, '-c', program], stderr=err, check=True)
      assert seen.read(1000).decode() == f'at a terminal: {is_terminal}'


def test_processes_in_other_sessions_end_with_the_run(tmp_path):
  """Also those whose parent has ended: they have become this one's."""
  orphan, never = tmp_path / 'orphan', tmp_path / 'never'
  os.mkfifo(orphan)
  os.mkfifo(never)
  leaves = f"setsid -f bash -c 'echo $$ >{orphan}; read -r <>{never}'"
  with open(orphan, 'r+b', buffering=0):
    wait = f'{leaves}; read -r pid <{orphan}; echo $pid >{tmp_path / "pid"}'
    assert children.run([children.ChildCommand(['bash', '-c', wait])]) == 0
    assert not outlives(int((tmp_path / 'pid').read_text()))


def test_a_second_signal_reaches_orphans_in_other_sessions(tmp_path):
  started = tmp_path / 'started'
  os.mkfifo(started)
  child = (
    'import os, subprocess, sys\n'
    # The parent of the sleeper ends at once.
    'subprocess.run(["setsid", "-f", "bash", "-c", '
    f'"echo $$ >{started}; trap : TERM INT; '
    f'for i in {{1..1000}}; do read -r -t 1 <>{started}.never; done"])\n'
    'import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n'
    'os.read(os.open(sys.argv[1], os.O_RDWR), 1)'
  )
  os.mkfifo(f'{started}.never')
  os.mkfifo(f'{started}.child')
  words = [sys.executable, '-c', child, f'{started}.child']
  program = (
    'import signal, sys\n'
    'from terngrad import signals\n'
    'from terngrad.cli import children\n'
    'with signals.obey(), signals.stop_at_signal():\n'
    f'  children.run([children.ChildCommand({words!r})])\n'
  )
  with open(started, 'r+b', buffering=0) as pipe:
    process = subprocess.Popen(
      [sys.executable, '-c', program],
      stderr=subprocess.PIPE,
      env=os.environ | {signal_guard.VARIABLE: '600'},
    )
    try:
      orphan = int(pipe.readline())
      # Signals within a second are one request.
      while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
          process.wait(0.5)
      assert b'second signal' in process.stderr.read()
    finally:
      process.kill()
      process.wait()
      process.stderr.close()
  assert not outlives(orphan)
