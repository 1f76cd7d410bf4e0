import contextlib
import signal
import socket
import subprocess
import sys
import threading

import pytest
import tensorflow as tf

from terngrad.cluster import tasks

# Seconds for a call, of which the first must not fail on a busy machine.
TIMEOUT = 10
SERVES = """
import sys, time
import tensorflow as tf
server = tf.distribute.Server({'worker': [sys.argv[1]]}, 'worker', 0)
print('serves', flush=True)
time.sleep(10000)
"""


@pytest.fixture
def served():
  """(A worker, its process)."""
  with socket.create_server(('127.0.0.1', 0)) as free:
    address = f'127.0.0.1:{free.getsockname()[1]}'
  process = subprocess.Popen(
    [sys.executable, '-c', SERVES, address], stdout=subprocess.PIPE
  )
  try:
    assert process.stdout.readline() == b'serves\n'
    yield tasks.Task('worker', 0, address), process
  finally:
    process.kill()
    process.communicate()


@pytest.mark.cluster
def test_a_task_that_is_too_slow_leaves_no_traceback(served, monkeypatch):
  task, process = served
  unhandled = []
  monkeypatch.setattr(threading, 'excepthook', unhandled.append)
  with contextlib.ExitStack() as stack:
    stack.enter_context(tf.Graph().as_default())
    one = tf.constant(1)
    stack.enter_context(pytest.raises(tf.errors.DeadlineExceededError))
    opened = stack.enter_context(tasks.session(task, TIMEOUT))
    assert opened.run(one) == 1
    process.send_signal(signal.SIGSTOP)
    opened.run(one)
  assert unhandled == []


def test_a_task_that_does_not_answer_is_lost():
  with socket.create_server(('127.0.0.1', 0)) as silent:
    address = f'127.0.0.1:{silent.getsockname()[1]}'
    task = tasks.Task('worker', 1, address)
    assert not tasks.answers(task, timeout=0.5)
    with pytest.raises(
      tasks.LostError, match='worker 1 .*: expected its state'
    ):
      tasks.state_of(task, timeout=0.5)


@pytest.fixture
def many():
  """As many tasks as are called at once, and one more."""
  return [tasks.Task('worker', i, f'h{i}:1') for i in range(65)]


def test_silent_tasks_delay_no_others(monkeypatch, many):
  # Each call lasts until the others were made.
  together = threading.Barrier(64, timeout=60)

  def state_of(task, timeout):
    if task == many[-1]:
      return 'state'
    together.wait()
    raise tasks.LostError

  monkeypatch.setattr(tasks, 'state_of', state_of)
  missing = []

  def waiting(task):
    missing.append(task)
    monkeypatch.setattr(tasks, 'state_of', lambda task, timeout: 'state')

  states = tasks.wait_for_states(many, 600, waiting)
  assert missing == [many[0]]
  assert states == dict.fromkeys(many, 'state')


def test_the_wait_for_tasks_ends_at_its_time_limit(monkeypatch, many):
  now, asked = [0.0], []
  monkeypatch.setattr(tasks.time, 'monotonic', lambda: now[0])
  # A single thread, as if there were far more tasks.
  monkeypatch.setattr(tasks, '_THREADS', 1)

  def state_of(task, timeout):
    asked.append(task)
    now[0] += timeout
    raise tasks.LostError

  monkeypatch.setattr(tasks, 'state_of', state_of)
  assert tasks.wait_for_states(many, 8) == {}
  assert asked == many[:3]


def test_all_tasks_are_ordered_to_end_at_once(monkeypatch, many):
  together, ended = threading.Barrier(64, timeout=60), []

  def send_order(task, **fields):
    if task == many[-1]:
      ended.append(task)
      return
    together.wait()
    raise tasks.LostError

  monkeypatch.setattr(tasks, 'send_order', send_order)
  tasks.end_tasks(many)
  assert ended == [many[-1]]
