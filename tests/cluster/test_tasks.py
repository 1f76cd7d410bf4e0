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
