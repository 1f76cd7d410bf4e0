import concurrent.futures
import json
import os
import re
import socket
import subprocess
import sys
import threading
import types

import pytest

from terngrad.cluster import spec
from terngrad.cluster import watchdog


@pytest.fixture
def silent():
  """A port whose connections the kernel accepts, and nobody else."""
  with socket.create_server(('127.0.0.1', 0)) as server:
    yield f'127.0.0.1:{server.getsockname()[1]}'


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
  monkeypatch.setattr(watchdog, '_PING_SECONDS', 0.3)


@pytest.fixture
def knows(monkeypatch, awake):
  """Whatever a busy machine takes, the server that is awake answers."""
  monkeypatch.setattr(watchdog, 'answers', lambda address: address == awake)


def test_only_a_server_that_greets_is_awake(silent, awake, monkeypatch):
  with monkeypatch.context() as patient:
    patient.setattr(watchdog, '_PING_SECONDS', 60)
    assert watchdog.answers(awake)
  assert not watchdog.answers(silent)
  with socket.create_server(('127.0.0.1', 0)) as closed:
    port = closed.getsockname()[1]
  assert not watchdog.answers(f'127.0.0.1:{port}')
  # Python raises no OSError for it.
  assert not watchdog.answers('a..b:1')


@pytest.mark.usefixtures('knows')
def test_silent_tasks_are_named_and_the_others_are_not(silent, awake):
  tasks = spec.make({'worker': ['localhost:1', awake, silent]}, 'worker', 0)
  line = watchdog.timeout_report(tasks, 5, 'Step 3')
  assert line.startswith('Step 3: expected every task to respond')
  assert f'no answer from worker 2 ({silent}) (it took more than 5 s)' in line
  assert awake not in line


def test_a_task_that_tensorflow_names_is_named_though_it_answers(awake):
  tasks = spec.make({'worker': ['localhost:1', awake]}, 'worker', 0)
  messages = (
    'tasks are unhealthy: /job:worker/replica:0/task:1 or /job:ps/task:9'
  )
  lost = watchdog.lost_tasks(tasks, messages)
  assert lost == [f'worker 1 ({awake})']
  report = watchdog.loss_report(lost, messages)
  assert f'no answer from worker 1 ({awake})' in report
  assert watchdog.lost_tasks(tasks, 'late') == []
  assert 'one of them is slow' in watchdog.loss_report([], 'late')


def test_a_block_that_ends_in_time_is_left_alone(silent):
  tasks = spec.make({'worker': ['localhost:1', silent]}, 'worker', 0)
  messages = []
  with watchdog.limit(tasks, 100, 'Step 1', messages.append):
    pass
  with watchdog.limit_start(tasks, 100, 'Start'):
    pass
  assert messages == []


def test_a_block_over_its_time_limit_is_reported(silent):
  tasks = spec.make({'worker': ['localhost:1', silent]}, 'worker', 0)
  over = threading.Event()
  messages = []

  def end(message):
    messages.append(message)
    over.set()

  with watchdog.limit(tasks, 0.1, 'Step 1', end):
    assert over.wait(60)
  assert silent in messages[0]


# `PyDLL` keeps Python's lock while C sleeps, as TensorFlow does while it sends
# a function to a task that is stopped.
HOLDS_THE_LOCK = """
import ctypes, sys
from terngrad.cluster import spec, watchdog
watchdog._MESSAGE_SECONDS = 1.5
tasks = spec.make({'worker': ['localhost:1', sys.argv[1]]}, 'worker', 0)
with getattr(watchdog, sys.argv[2])(tasks, 600, 'Step 1'):
  pass
with getattr(watchdog, sys.argv[2])(tasks, 0.1, 'Step 2'):
  ctypes.PyDLL(None).sleep(600)
"""


@pytest.fixture(scope='module')
def held():
  """A silent address, and how processes with each kind of block have ended.

  Both run at the same time, because most of it is waiting.
  """
  with socket.create_server(('127.0.0.1', 0)) as nobody:
    address = f'127.0.0.1:{nobody.getsockname()[1]}'
    started = {
      name: subprocess.Popen(
        [sys.executable, '-c', HOLDS_THE_LOCK, address, name],
        stderr=subprocess.PIPE,
        text=True,
      )
      for name in ('limit', 'limit_start')
    }
    ended = {}
    for name, process in started.items():
      _, errors = process.communicate(timeout=100)
      ended[name] = process.returncode, errors
  return address, ended


@pytest.mark.parametrize(('name', 'code'), [('limit', 75), ('limit_start', 1)])
def test_a_block_that_holds_pythons_lock_is_ended(held, name, code):
  address, ended = held
  received, errors = ended[name]
  assert received == code
  (line,) = errors.splitlines()
  assert re.match(r'error: Step 2: expected every task to respond', line)
  assert f'no answer from worker 1 ({address})' in line


def test_an_ended_message_printer_writes_to_no_other_file(tmp_path):
  printer = watchdog._MessagePrinter()
  printer._process.communicate()
  with open(tmp_path / 'other', 'w+', encoding='utf-8') as other:
    printer._send([1])
    assert other.read() == ''


@pytest.fixture
def piped(monkeypatch):
  """A message printer, and the pipe from which its process would read."""
  reader, writer = os.pipe()
  with open(reader, 'rb', buffering=0) as messages, open(writer, 'wb') as pipe:
    process = types.SimpleNamespace(stdin=pipe, communicate=lambda: None)
    monkeypatch.setattr(subprocess, 'Popen', lambda *words, **more: process)
    yield watchdog._MessagePrinter(), messages


def handle(lines):
  """What the printer's process knows after these lines."""
  waiting = watchdog._Waiting()
  for line in lines:
    watchdog._handle(json.loads(line), waiting, None)
  return waiting


def test_no_message_is_lost_if_nobody_reads_for_long(piped):
  printer, messages = piped
  request = (100.0, 'Step', None)
  with printer.print_after(100, request):
    # More than a pipe holds.
    for _ in range(5000):
      with printer.print_after(100, request):
        pass
  lines = messages.read(2**20).splitlines(keepends=True)
  printer._send({'taken': 15})
  lines = b''.join([*lines, messages.read(2**20)]).splitlines()
  assert len(lines) > 1000
  assert handle(lines).blocks == {}
  assert json.loads(lines[-1]) == {'taken': 15}
  # What nobody needs is not stored either.
  assert printer._unsent == []


def test_a_cluster_larger_than_a_pipe_is_sent_once(piped):
  printer, messages = piped
  hosts = [f'{"h" * 58}{i}:2222' for i in range(3000)]
  tasks = spec.make({'worker': hosts}, 'worker', 7)
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    reading = pool.submit(messages.readall)
    printer.describe(tasks)
    printer.describe(tasks)
    printer._send([1])
    printer._input.close()
    described, last = reading.result().splitlines()
  assert handle([described]).cluster == tasks
  assert last == b'[1]'


def test_lines_that_are_no_messages_are_skipped():
  tasks = {'cluster': [{'worker': ['localhost:1', 'localhost:2']}, 'worker', 0]}
  late = [0, 0.0, [5.0, 'Step 7', None]]
  lines = '["a", 3', json.dumps(tasks), '{', json.dumps(late)
  ended = subprocess.run(
    [sys.executable, '-m', 'terngrad.cluster.watchdog'],
    input='\n'.join([*lines, '']),
    capture_output=True,
    text=True,
    timeout=100,
  )
  assert ended.returncode == 0, ended.stderr
  assert ended.stderr.startswith('error: Step 7: expected every task to')
