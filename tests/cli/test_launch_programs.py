"""Programs and trainers that `terngrad launch` starts, and how they end."""

import json
import os
import queue
import re
import signal
import socket
import sys

import pytest

from terngrad import errors
from terngrad import signal_guard
from terngrad.cli import flags
from terngrad.cli import launch
from terngrad.cli import launch_program
from terngrad.cli import ports
from terngrad.launching import output
from terngrad.launching import processes
from tests import endings

# The index of a process, as a program and as a trainer.
RANK = """\
import json, os, signal, sys
if 'TF_CONFIG' in os.environ:
  rank = json.loads(os.environ['TF_CONFIG'])['task']['index']
else:
  (rank,) = [int(a[10:]) for a in sys.argv if a.startswith('--task_id=')]
TERM = [signal.SIGTERM]
"""
# Starts a child that does what follows, up to its end.
CHILD = """
there, here = os.pipe()
if not os.fork():
  {child}
  print('child', os.getpid(), flush=True)
  os.write(here, b'.')
  {then}
  os._exit(0)
os.read(there, 1)
"""


def python(script, **changes):
  """Launches a program in Python; returns the exit code."""
  command = (sys.executable, '-S', '-c', RANK + script)
  return launch.launch(launch.LaunchFlags(command=command, **changes))


def child(does='', then='signal.pause()'):
  return CHILD.format(child=does, then=then)


def children_of(text):
  """The numbers of the processes that `child` printed."""
  return [int(number) for number in re.findall(r'child (\d+)', text)]


def test_the_end_of_a_program_counts_while_its_child_holds_the_output(capsys):
  script = f'{child()}\nif rank: sys.exit(7)\nsignal.pause()'
  assert python(script) == 7
  out, err = capsys.readouterr()
  assert 'worker 1 ended with exit code 7' in err
  assert all(map(endings.has_ended, children_of(out)))


def test_processes_that_a_program_leaves_are_asked_to_end(capsys):
  does = 'signal.pthread_sigmask(signal.SIG_BLOCK, TERM)'
  then = 'signal.sigwait(TERM); print("saved", flush=True)'
  assert python(child(does, then), num_workers=1) == 0
  assert '[worker 0] saved\n' in capsys.readouterr().out


def test_silent_processes_that_a_program_leaves_are_ended(capsys):
  then = 'os.dup2(os.open("/dev/null", os.O_RDWR), 1); os.close(2)'
  then += '; signal.pause()'
  assert python(child(then=then), num_workers=1) == 0
  (left,) = children_of(capsys.readouterr().out)
  assert endings.has_ended(left)


def test_processes_that_ignore_the_signal_are_killed(monkeypatch, capsys):
  monkeypatch.setenv(signal_guard.VARIABLE, '1')
  does = 'signal.signal(signal.SIGTERM, signal.SIG_IGN)'
  assert python(f'{child(does)}\nsys.exit(7)', num_workers=1) == 7
  (left,) = children_of(capsys.readouterr().out)
  assert endings.has_ended(left)


def test_what_a_program_leaves_is_killed_while_the_others_run(
  tmp_path, monkeypatch
):
  monkeypatch.setenv(signal_guard.VARIABLE, '1')
  os.mkfifo(tmp_path / 'fifo')
  does = 'signal.signal(signal.SIGTERM, signal.SIG_IGN)'
  does += '; open("fifo", "w").write(str(os.getpid()))'
  leaves = child(does).replace('\n', '\n  ')
  script = f"""
import time
os.chdir({str(tmp_path)!r})
if rank == 1:
  {leaves}
  sys.exit(0)
path = '/proc/' + open('fifo').read() + '/stat'
try:
  while open(path).read().split(') ')[1][0] != 'Z':
    time.sleep(0.05)
except OSError:
  pass
"""
  assert python(script) == 0


def test_a_process_of_another_session_does_not_delay_the_end(capsys):
  assert python(f'{child("os.setsid()")}\nsys.exit(7)', num_workers=1) == 7
  (left,) = children_of(capsys.readouterr().out)
  assert not endings.has_ended(left, 0)
  os.kill(left, signal.SIGKILL)


def test_lines_before_the_end_are_printed_even_without_a_newline(capsys):
  script = 'print("a\\n\\nb"); print("c", end="", flush=True); os._exit(0)'
  assert python(script, num_workers=1) == 0
  out = capsys.readouterr().out
  assert out.endswith('[worker 0] a\n[worker 0] \n[worker 0] b\n[worker 0] c\n')


def test_one_request_is_one_signal_also_for_what_a_program_leaves(
  monkeypatch, capsys
):
  """A second signal would interrupt what is saved after the first one."""
  sent, killpg, say = [], os.killpg, output.say

  def send(group, number):
    sent.append(number)
    killpg(group, number)

  def said(line):
    say(line)
    if 'child' in line:
      os.kill(os.getpid(), signal.SIGTERM)

  monkeypatch.setattr(os, 'killpg', send)
  monkeypatch.setattr(output, 'say', said)
  does = 'signal.pthread_sigmask(signal.SIG_BLOCK, TERM)'
  then = 'signal.sigwait(TERM); print("saved", flush=True)'
  # The program itself ends at the signal, before its child.
  script = f'{child(does, then)}\nsignal.pause()'
  assert python(script, num_workers=1) == 128 + signal.SIGTERM
  assert 'saved' in capsys.readouterr().out
  assert sent.count(signal.SIGTERM) == 1


def test_programs_that_ignore_the_users_signal_are_killed(monkeypatch, capsys):
  monkeypatch.setenv(signal_guard.VARIABLE, '1')
  say = output.say

  def said(line):
    say(line)
    if 'ready' in line:
      os.kill(os.getpid(), signal.SIGTERM)

  monkeypatch.setattr(output, 'say', said)
  script = 'signal.signal(signal.SIGTERM, signal.SIG_IGN)\n'
  script += 'print("ready", flush=True)\nsignal.pause()'
  assert python(script, num_workers=1) == 128 + signal.SIGTERM
  assert 'ready' in capsys.readouterr().out


@pytest.mark.parametrize('is_program', [True, False])
def test_after_a_failure_all_are_asked_to_end_before_any_is_waited_for(
  tmp_path, monkeypatch, capsys, is_program
):
  for name in ('ready', 'first', 'second'):
    os.mkfifo(tmp_path / name)
  script = tmp_path / 'script.py'
  # Each of two processes ends only after the other one got its signal, too.
  script.write_text(
    f"""{RANK}
os.chdir({str(tmp_path)!r})
if rank == 0:
  # Both ends, so that no reader misses a writer.
  with open('ready', 'r+b', buffering=0) as ready:
    ready.read(1), ready.read(1)
  sys.exit(3)
signal.pthread_sigmask(signal.SIG_BLOCK, TERM)
with open('ready', 'r+b', buffering=0) as ready:
  ready.write(b'.')
  signal.sigwait(TERM)
mine, other = ('first', 'second')[:: 1 if rank == 1 else -1]
for name in ('first', 'second'):
  open(name, 'w' if name == mine else 'r').close()
print('met', flush=True)
"""
  )
  line = (sys.executable, '-S', str(script))
  monkeypatch.setattr(launch, 'TRAINER', line)
  command = line if is_program else ('train', 'mnist')
  assert launch.launch(launch.LaunchFlags(num_workers=3, command=command)) == 3
  out, err = capsys.readouterr()
  assert 'worker 0 ended with exit code 3' in err
  assert out.count('met') == 2


def test_no_signal_goes_to_the_number_of_a_reaped_process(monkeypatch):
  events = queue.SimpleQueue()
  for is_program in (True, False):
    task = processes.ProcessCommand('a', ('true',), is_program=is_program)
    process = processes.Process(task, events)
    assert events.get() == (process, 0)
    process.stop()
    process.join()
    monkeypatch.setattr(os, 'kill', None)
    monkeypatch.setattr(os, 'killpg', None)
    process.signal(signal.SIGTERM)
    monkeypatch.undo()


def test_signals_that_nohup_ignores_are_not_passed_on():
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  try:
    command = ('sh', '-c', 'kill -HUP "$PPID"')
    values = launch.LaunchFlags(num_workers=1, command=command)
    assert launch.launch(values) == 0
  finally:
    signal.signal(signal.SIGHUP, before)


def test_a_signal_without_a_name_is_reported_by_its_number(capsys):
  command = ('bash', '-c', 'kill -40 $$')
  values = launch.LaunchFlags(num_workers=1, command=command)
  assert launch.launch(values) == 128 + 40
  assert 'exit code 168, killed by signal 40: ' in capsys.readouterr().err


def test_programs_go_on_when_nobody_reads_the_output(monkeypatch):
  reader, writer = os.pipe()
  os.close(reader)
  events = queue.SimpleQueue()
  # More than a pipe holds.
  script = 'echo; head -c 200000 /dev/zero'
  with os.fdopen(writer, 'w') as out:
    monkeypatch.setattr(sys, 'stdout', out)
    task = processes.ProcessCommand('a', ('sh', '-c', script))
    process = processes.Process(task, events)
    assert events.get() == (process, 0)
    process.stop()
    process.join()


@pytest.fixture
def without_shebang(tmp_path):
  program = tmp_path / 'program'
  program.write_text('print(1)\n')
  program.chmod(0o755)
  return str(program)


def test_a_file_that_cannot_be_executed_is_refused(without_shebang):
  remedy = f'`-- python {without_shebang}`'
  with pytest.raises(errors.ConfigError, match=remedy) as error:
    launch.launch(launch.LaunchFlags(command=(without_shebang,)))
  assert 'received: Exec format error' in str(error.value)


def test_after_a_failed_start_the_started_processes_are_stopped(
  without_shebang, monkeypatch
):
  before = signal_guard.descendants(os.getpid())
  starts = [
    processes.ProcessCommand('worker 1', ('sleep', '600'), is_program=True),
    processes.ProcessCommand('worker 0', (without_shebang,), is_program=True),
  ]
  with pytest.raises(errors.ConfigError, match='expected a program that'):
    launch._run(starts)
  assert signal_guard.descendants(os.getpid()) == before


OWN = [
  ('mnist_train', '--max_steps=4'),
  ('/some/bin/terngrad', 'train', 'mnist'),
  ('train_image_classifier',),
  ('python', '-m', 'terngrad.bin.mnist_train'),
  (sys.executable, '-W', 'error', '-um', 'terngrad.cli.main', 'train', 'mnist'),
  ('python3', '-mslim.train_image_classifier'),
]


@pytest.mark.parametrize('command', OWN)
def test_programs_of_terngrad_are_refused(command):
  with pytest.raises(flags.UsageError, match='Write `-- train mnist ...`'):
    launch.launch(launch.LaunchFlags(command=command))


@pytest.mark.parametrize(
  'command',
  [
    (sys.executable, 'mnist_train.py', '-m', 'terngrad.bin.mnist_train'),
    (sys.executable, '-m', 'my.mnist_train'),
    (sys.executable, '-c', 'pass', '-m', 'terngrad.bin.mnist_train'),
    (sys.executable, '-m', 'terngrad.cli.main', 'measure', 'fit'),
  ],
)
def test_other_programs_are_not_refused(command):
  assert launch_program.is_program(command)


def test_programs_are_refused_where_terngrad_is_not_installed(monkeypatch):
  def missing(name):
    raise launch_program.importlib.metadata.PackageNotFoundError(name)

  monkeypatch.setattr(
    launch_program.importlib.metadata, 'distribution', missing
  )
  with pytest.raises(flags.UsageError, match='received terngrad'):
    launch_program.is_program(('terngrad', 'train', 'mnist'))


@pytest.mark.parametrize(
  ('hosts', 'message'),
  [
    (('a', ''), "received ':2224'"),
    (('a', 'b c'), "received 'b c:2224'"),
    (('a', 'b:'), 'expected host:port'),
    (('a', 'b:70000'), 'port from 1 to 65535'),
    (('a', 'b:0'), 'port from 1 to 65535'),
    (('a', 'a:2224'), 'expected every address once'),
  ],
)
@pytest.mark.parametrize('command', [('true',), ('train', 'mnist')])
def test_invalid_hosts_are_refused_beside_a_rank(hosts, message, command):
  values = launch.LaunchFlags(
    hosts=hosts, rank=0, allow_insecure_network=True, command=command
  )
  with pytest.raises(flags.UsageError, match=f'^--hosts: .*{message}'):
    launch.launch(values)


def test_a_tunnel_is_not_offered_beside_a_rank():
  values = launch.LaunchFlags(hosts=('a', 'b'), rank=0, command=('true',))
  with pytest.raises(flags.UsageError) as error:
    launch.launch(values)
  assert 'expected --allow_insecure_network beside' in str(error.value)
  assert '--tunnel' not in str(error.value)


def test_open_ports_of_local_programs_are_reported_once(capsys):
  assert python('print(os.environ["TF_CONFIG"])') == 0
  lines = capsys.readouterr().out.splitlines()
  (warning,) = [line for line in lines if 'warning: ' in line]
  config = json.loads(lines[-1].partition('] ')[2])
  ports = [one.rpartition(':')[2] for one in config['cluster']['worker']]
  assert 'all interfaces' in warning
  assert f'ports {", ".join(ports)} of this machine are open' in warning


def test_a_declared_network_is_reported_beside_a_rank(capsys):
  (port,) = ports.free(1)
  hosts = ('node1', f'node2:{port}')
  assert python('', rank=1, hosts=hosts, allow_insecure_network=True) == 0
  out = capsys.readouterr().out
  assert out.startswith('[launch] warning: 2 of 2 tasks are on a network')


def test_a_port_in_use_is_named_before_the_program_starts(capsys):
  with socket.socket() as other:
    other.bind(('', 0))
    other.listen()
    address = f'node1:{other.getsockname()[1]}'
    with pytest.raises(
      flags.UsageError,
      match=rf'--hosts: worker 0 \({address}\): .* in use. .* another port',
    ):
      python(
        'print("began")',
        rank=0,
        hosts=(address, 'node2'),
        allow_insecure_network=True,
      )
  assert 'began' not in capsys.readouterr().out
