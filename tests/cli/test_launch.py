"""What `terngrad launch` starts, and what becomes of it."""

import json
import os
import re
import signal
import sys

import pytest

from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli import launch
from terngrad.cluster import watchdog
from terngrad.launching import processes
from tests.bin import programs

TRAIN = ('train', 'mnist', '--max_steps=4')


def words(**changes):
  """The arguments of `terngrad` in each process, by label."""
  return {
    task.label: [*task.words[len(launch.TRAINER) :]]
    for task in launch.tasks(launch.LaunchFlags(**changes))
  }


def programs_of(**changes):
  """(command line, TF_CONFIG) of each process, by label."""
  return {
    task.label: (task.words, json.loads(task.variables['TF_CONFIG']))
    for task in launch.tasks(launch.LaunchFlags(**changes))
  }


def flag(line, name):
  (value,) = [w for w in line if w.startswith(f'--{name}=')]
  return value.partition('=')[2]


def test_equal_workers_get_all_hosts_and_their_index():
  tasks = words(num_workers=3, command=TRAIN)
  assert set(tasks) == {'worker 0', 'worker 1', 'worker 2'}
  assert len({flag(line, 'worker_hosts') for line in tasks.values()}) == 1
  for label, line in tasks.items():
    assert line[:3] == list(TRAIN)
    assert '--exchange=collective' in line
    assert label == f'worker {flag(line, "task_id")}'
  assert len(set(flag(line, 'worker_hosts').split(','))) == 3


def test_with_servers_the_command_is_distributed_train():
  tasks = words(num_workers=2, num_ps=1, command=TRAIN)
  assert set(tasks) == {'ps 0', 'worker 0', 'worker 1'}
  for line in tasks.values():
    assert line[:2] == ['distributed_train', 'mnist']
    assert len(flag(line, 'ps_hosts').split(',')) == 1
  assert flag(tasks['ps 0'], 'job_name') == 'ps'


def test_the_chief_is_started_last():
  assert list(words(num_workers=2, num_ps=1, command=TRAIN))[-1] == 'worker 0'


@pytest.mark.parametrize(
  'command', [(), ('eval', 'mnist'), ('train', 'slim'), ('--max_steps=4',)]
)
def test_commands_that_cannot_run_on_several_processes_are_refused(command):
  with pytest.raises(flags.UsageError, match='train DATASET'):
    launch.tasks(launch.LaunchFlags(command=command))


def test_a_program_starts_once_per_worker_with_its_own_tf_config():
  command = (sys.executable, 'my.py', '--task_id=7')
  found = programs_of(num_workers=3, command=command)
  assert list(found) == ['worker 2', 'worker 1', 'worker 0']
  clusters = [config['cluster'] for _, config in found.values()]
  assert clusters == clusters[:1] * 3
  assert len(set(clusters[0]['worker'])) == 3
  for label, (line, config) in found.items():
    assert line == command
    assert config['task'] == {'type': 'worker', 'index': int(label[-1])}


def test_a_rank_starts_the_process_of_one_host_alone():
  hosts = ('node1', 'node2:5000')
  found = programs_of(hosts=hosts, rank=1, command=(sys.executable,))
  ((label, (_, config)),) = found.items()
  assert label == 'worker 1'
  assert config['cluster'] == {'worker': ['node1:2224', 'node2:5000']}
  trains = words(hosts=hosts, rank=0, command=TRAIN)
  assert flag(trains['worker 0'], 'worker_hosts') == 'node1:2224,node2:5000'


def test_the_lines_of_a_program_appear_with_its_label():
  finished = programs.run(
    'terngrad.cli.main',
    'launch',
    '-n',
    '2',
    '--',
    'sh',
    '-c',
    'echo "$TF_CONFIG"',
  )
  assert finished.code == 0
  for index in range(2):
    (line,) = [
      one
      for one in finished.out.splitlines()
      if one.startswith(f'[worker {index}] ')
    ]
    assert json.loads(line[11:])['task']['index'] == index


def test_the_exit_code_of_a_program_that_fails_is_that_of_the_run():
  script = 'case $TF_CONFIG in *"index\\": 1"*) exit 7 ;; esac; sleep 600'
  finished = programs.run(
    'terngrad.cli.main', 'launch', '--', 'sh', '-c', script
  )
  assert finished.code == 7
  assert 'worker 1 ended with exit code 7' in finished.error


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'num_ps': 1}, '--num_ps: expected 0 beside `-- sh'),
    ({'hosts': ('a', 'b')}, '--rank: expected the index of this host'),
    ({'hosts': ('a',), 'rank': 1}, 'index of one of 1 --hosts, received 1'),
    ({'rank': 0}, 'expected --config=FILE or --hosts=A,B'),
    ({'hosts': ('a', 'b'), 'rank': 0}, 'received none with a:2224'),
    (
      {'hosts': ('a', 'b'), 'rank': 0, 'workspace': '/w'},
      '--workspace: expected none beside --rank',
    ),
    ({'command': ('no_such.py',)}, 'with `-- python no_such.py`'),
  ],
)
def test_a_program_that_does_not_fit_the_flags_is_refused(changes, message):
  values = {'command': ('sh', '-c', 'exit 0')} | changes
  with pytest.raises(flags.UsageError, match=re.escape(message)):
    launch.launch(launch.LaunchFlags(**values))


def test_words_after_the_dashes_belong_to_the_command():
  parsed = flags.parse(
    launch.LaunchFlags,
    {},
    ['--num_workers=3', '--', 'train', 'mnist', '--help', '--', 'x'],
    rest='command',
  )
  assert parsed.values.num_workers == 3
  assert parsed.values.command == ('train', 'mnist', '--help', '--', 'x')


def test_a_process_that_fails_ends_the_run_with_its_code():
  # Flags are read before TensorFlow is loaded, so that this is quick.
  finished = programs.run(
    'terngrad.cli.main', 'launch', '--', *TRAIN, '--no_such_flag=1'
  )
  assert finished.code == 2
  assert '--no_such_flag: expected a flag of this program' in finished.out
  assert 'ended with exit code 2' in finished.error


def test_no_worker_is_refused():
  finished = programs.run(
    'terngrad.cli.main', 'launch', '--num_workers=0', '--', *TRAIN
  )
  assert finished.code == 2
  assert 'num_workers: expected a number >= 1, received 0' in finished.error


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
  """Gives what each worker does, in bash; returns the launcher's exit code.

  `late` writes a line to a worker that does `read -r <>"$fifo"`, when the
  launcher has said a line with this text.
  """
  fifo = tmp_path / 'fifo'
  os.mkfifo(fifo)

  def launched(chief, other, late=''):
    script = tmp_path / 'python'
    script.write_text(
      f'#!/usr/bin/env bash\nfifo={fifo}\n'
      f'case " $* " in *" --task_id=0 "*) {chief} ;; *) {other} ;; esac\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(launch, 'TRAINER', (str(script),))
    # Open to read and to write, a pipe waits for no other end.
    with open(fifo, 'r+b', buffering=0) as go_on:
      say = command.say

      def said(line):
        say(line)
        if late and late in line:
          go_on.write(b'\n')

      monkeypatch.setattr(command, 'say', said)
      return launch.launch(launch.LaunchFlags(command=TRAIN))

  return launched


STAYS = 'read -r <>"$fifo"'


# TensorFlow aborts a process that lost another one.
@pytest.mark.parametrize('first', [f'exit {watchdog.LOST}', 'kill -ABRT $$'])
@pytest.mark.parametrize('code', [1, 3])
def test_a_failure_decides_even_if_a_lost_process_ended_before(
  stand_ins, monkeypatch, capsys, first, code
):
  monkeypatch.setattr(command, 'SETTLE_SECONDS', 600)
  late = 'worker 0 ended with exit code'
  assert stand_ins(first, f'{STAYS}; exit {code}', late) == code
  out, err = capsys.readouterr()
  assert 'waiting up to 600 s for the others' in out
  assert f'worker 1 ended with exit code {code}: expected 0, so' in err


def test_a_lost_process_decides_if_no_process_fails_in_time(
  stand_ins, monkeypatch, capsys
):
  monkeypatch.setattr(command, 'SETTLE_SECONDS', 0)
  assert stand_ins(f'exit {watchdog.LOST}', STAYS) == watchdog.LOST
  assert 'worker 0 ended with exit code 75' in capsys.readouterr().err


@pytest.mark.parametrize('order', [1, -1])
def test_a_killed_process_is_named_rather_than_the_one_that_lost_it(
  stand_ins, monkeypatch, capsys, order
):
  monkeypatch.setattr(command, 'SETTLE_SECONDS', 600)
  does = (f'exit {watchdog.LOST}', 'kill -KILL $$')[::order]
  assert stand_ins(*does) == 137
  killed = 1 if order == 1 else 0
  assert f'worker {killed} ended with exit code 137' in capsys.readouterr().err


@pytest.mark.parametrize('code', [1, 3, 143])
@pytest.mark.parametrize('name', ['KILL', 'SEGV', 'TERM'])
def test_a_killed_process_is_named_rather_than_one_that_fails_without_it(
  stand_ins, monkeypatch, capsys, name, code
):
  monkeypatch.setattr(command, 'SETTLE_SECONDS', 600)
  late = 'worker 1 ended with exit code'
  number = signal.Signals[f'SIG{name}'].value
  does = f'{STAYS}; exit {code}', f'kill -{name} $$'
  assert stand_ins(*does, late) == 128 + number
  assert (
    f'worker 1 ended with exit code {128 + number}, killed by signal {number} '
    f'(SIG{name}): expected 0, so'
  ) in capsys.readouterr().err


def test_a_failure_that_is_seen_before_the_kill_is_not_named(
  stand_ins, monkeypatch, capsys
):
  monkeypatch.setattr(launch, 'CAUSE_SECONDS', 600)
  monkeypatch.setattr(
    launch, '_settle', tell_after(launch._settle, late := 'failed first')
  )
  assert stand_ins('exit 1', f'{STAYS}; kill -KILL $$', late) == 137
  assert 'worker 1 ended with exit code 137' in capsys.readouterr().err


def tell_after(function, line):
  """Returns the function; each call also says a line."""

  def told(*arguments):
    command.say(line)
    return function(*arguments)

  return told


def test_of_two_failures_the_first_is_named(stand_ins, monkeypatch, capsys):
  monkeypatch.setattr(launch, 'CAUSE_SECONDS', 600)
  monkeypatch.setattr(
    launch, '_settle', tell_after(launch._settle, late := 'failed first')
  )
  assert stand_ins('exit 1', f'{STAYS}; exit 1', late) == 1
  assert 'worker 0 ended with exit code 1:' in capsys.readouterr().err


def test_a_signal_while_waiting_for_others_gives_them_full_time_to_end(
  stand_ins, monkeypatch
):
  say, ask, asked = command.say, processes.Process.signal, []

  def said(line):
    say(line)
    if 'to see what failed' in line:
      os.kill(os.getpid(), signal.SIGTERM)

  def signalled(process, number):
    if number == signal.SIGTERM and not process._is_reaped:
      asked.append(process.label)
    ask(process, number)

  monkeypatch.setattr(command, 'SETTLE_SECONDS', 0)
  monkeypatch.setattr(command, 'say', said)
  monkeypatch.setattr(processes.Process, 'signal', signalled)
  saves = 'trap "sleep 1; exit 143" TERM; echo >"$fifo"; '
  saves += 'while :; do sleep 0.1; done'
  code = stand_ins(f'{STAYS}; exit {watchdog.LOST}', saves)
  # A second signal would cut short what it saves.
  assert (code, asked) == (143, ['worker 1'])
