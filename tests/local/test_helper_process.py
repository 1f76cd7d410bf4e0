"""A helper ends with its training process, and reports its failures."""

import fcntl
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from terngrad import errors
from terngrad.local import channel as channels
from terngrad.local import helper
from terngrad.local import helper_process
from terngrad.local import local_steps
from terngrad.local import options
from terngrad.local import shared_memory
from tests.exchange import processes

# Starts a helper that waits for another one, and prints its pid.
PARENT = """
import os, signal, sys
from terngrad.local import helper_process, options, shared_memory
text = options.encode(
  options.LocalOptions(1), specs=[['a', [2]]], statistics=[], rank=0,
  members=sys.argv[1:], restored=None, rejoins=False,
)
arrays = shared_memory.SharedArrays([(2,)])
files = [arrays.descriptor, os.memfd_create('a'), os.memfd_create('b')]
helper = helper_process.HelperProcess(text, files)
if not (forked := os.fork()):
  signal.pause()
print(helper._process.pid, forked, flush=True)
sys.stdin.read()
"""


def start_parent():
  """(A process with a helper and a forked child, descriptors of both)."""
  parent = subprocess.Popen(
    [sys.executable, '-c', PARENT, *processes.addresses(2)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
  )
  pids = map(int, parent.stdout.readline().split())
  return parent, *map(os.pidfd_open, pids)


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM])
def test_a_helper_ends_with_a_killed_training_process(number):
  parent, helper, forked = start_parent()
  parent.send_signal(number)
  parent.wait()
  try:
    # Readable when the process has ended; a forked child may live longer.
    assert select.select([helper], [], [], 60)[0]
    assert not select.select([forked], [], [], 0)[0]
  finally:
    signal.pidfd_send_signal(forked, signal.SIGKILL)
  parent.communicate()
  os.close(helper)
  os.close(forked)


def test_a_forked_process_does_not_end_the_helper_of_its_parent(monkeypatch):
  monkeypatch.setattr(helper_process, '_SECONDS', 0.0)
  ours = helper_process.HelperProcess('{}', [])
  if not (forked := os.fork()):
    ours.end()
    os._exit(0)
  assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
  assert ours._process.poll() is None
  ours.end()
  assert ours._process.poll() is not None


def test_a_connection_may_have_a_descriptor_above_1023():
  ours, theirs = socket.socketpair()
  high = fcntl.fcntl(ours.detach(), fcntl.F_DUPFD, 1500)
  channel = channels.Channel(socket.socket(fileno=high))
  assert not channel.wait(0)
  theirs.sendall(b'{}\n')
  assert channel.wait(60)
  channel.close()
  theirs.close()


def start_helper(*hosts):
  """The helper of process 0, and the files that it shares."""
  text = options.encode(
    options.LocalOptions(1),
    **{'specs': [['a', [2]]], 'statistics': [], 'rank': 0},
    **{'members': hosts, 'restored': None, 'rejoins': False},
  )
  shared = shared_memory.SharedArrays([(2,)])
  files = [os.memfd_create(name) for name in ('a', 'b')]
  return helper_process.HelperProcess(text, [shared.descriptor, *files]), files


@pytest.mark.slow
def test_a_forked_process_keeps_no_connection_to_the_helper():
  ours, files = start_helper('localhost:1')
  ours.wait_until_joined(None)
  if not (forked := os.fork()):
    signal.pause()
  try:
    # It ends by itself only if the connection is closed everywhere.
    ours._channel.close()
    assert ours._process.wait(60) == 0
  finally:
    os.kill(forked, signal.SIGKILL)
    os.waitpid(forked, 0)
    ours.end()
    for file in files:
      os.close(file)


@pytest.mark.slow
def test_a_helper_has_not_joined_before_the_others_come():
  waiting, files = start_helper(*processes.addresses(2))
  # It has imported TensorFlow long before.
  with pytest.raises(helper_process.HelperLost, match='did not join within 45'):
    waiting.wait_until_joined(45)
  waiting.end()
  for file in files:
    os.close(file)


def test_a_helper_that_others_do_not_join_in_time_is_lost(monkeypatch):
  monkeypatch.setattr(helper_process, '_SECONDS', 0.0)
  waiting = helper_process.HelperProcess('{}', [])
  with pytest.raises(
    helper_process.HelperLost, match='did not join within 0.01 seconds'
  ):
    waiting.wait_until_joined(0.01)
  waiting.end()


def test_a_helper_leaves_signals_to_the_training_process(monkeypatch):
  numbers = signal.SIGHUP, signal.SIGINT, signal.SIGTERM
  before = [signal.getsignal(number) for number in numbers]
  monkeypatch.setattr(helper.channels, 'end_with_writer', lambda pipe: None)

  def serve(channel, files):
    del files
    channel.close()
    return [signal.getsignal(number) for number in numbers]

  monkeypatch.setattr(helper, '_serve', serve)
  ours, theirs = socket.socketpair()
  with ours:
    try:
      assert helper.main([theirs.detach(), 0]) == [signal.SIG_IGN] * 3
    finally:
      for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_nothing_remains_in_shared_memory():
  arrays = shared_memory.SharedArrays([(2, 3), ()])
  other = shared_memory.SharedArrays([(2, 3), ()], arrays.descriptor)
  arrays.inputs[0][...] = 5
  other.outputs[1][...] = 7
  assert (other.inputs[0] == 5).all() and arrays.outputs[1] == 7
  assert (other.outputs[0] == 0).all()
  target = os.readlink(f'/proc/self/fd/{arrays.descriptor}')
  assert not pathlib.Path(target).exists()


def test_states_are_read_as_they_were_written():
  file = os.memfd_create('states')
  for size in (9, 2):
    written = {'a:0': np.arange(size, dtype=np.float32), 'n': np.array(size)}
    shared_memory.write_states(file, written)
    read = shared_memory.read_states(file)
    assert read.keys() == written.keys()
    np.testing.assert_array_equal(read['a:0'], written['a:0'])


def test_a_code_that_the_helper_refuses_is_an_error_of_the_configuration():
  steps = local_steps.LocalSteps(1, codec='unknown')
  with pytest.raises(errors.ConfigError, match='unknown'):
    steps.start([np.zeros(3, np.float32)])


@pytest.mark.slow
def test_a_lost_helper_of_one_process_is_an_error_with_a_remedy(monkeypatch):
  made = []
  original = helper_process.HelperProcess.__init__

  def init(self, *arguments):
    original(self, *arguments)
    made.append(self)

  monkeypatch.setattr(helper_process.HelperProcess, '__init__', init)
  steps = local_steps.LocalSteps(1)
  values = steps.start([np.zeros(3, np.float32)])
  made[0]._process.kill()
  with pytest.raises(errors.TrainingError, match='start the program again'):
    steps.exchange(values)


@pytest.mark.slow
@pytest.mark.parametrize('overlap', ['none', 'eager'])
def test_a_change_with_nan_changes_no_parameter(overlap, caplog):
  steps = local_steps.LocalSteps(1, outer='nesterov', overlap=overlap)
  before = steps.start([np.ones(3, np.float32)])
  good = [np.zeros(3, np.float32)]
  values = steps.exchange([before[0] * np.float32('nan')])
  np.testing.assert_array_equal(values[0], before[0])
  # With an overlap the next exchange reports it.
  after = steps.exchange(values)
  np.testing.assert_array_equal(after[0], before[0])
  assert caplog.text.count('received NaN or infinity') == 1
  assert np.isfinite(steps.exchange(good)[0]).all()
  steps.close()
