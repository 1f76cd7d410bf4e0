"""A signal ends a process in time, even if it waits in C forever."""

import concurrent.futures
import os
import select
import signal
import subprocess
import sys

import pytest

from terngrad import signal_guard
from terngrad import signals

# Many times what it takes, on a busy machine.
LIMIT = 200
NUMBERS = [pytest.param(n, id=n.name) for n in signals.NUMBERS]
OTHERS_RUN = 'others run'
BEGIN = """
import ctypes, os, signal, subprocess, sys, time
from terngrad import signal_guard
from terngrad import signals
from terngrad.cluster import spec, watchdog

tasks = spec.make({'worker': ['localhost:1', 'localhost:2']}, 'worker', 0)

def wait(library):
  # A signal ends a sleep of C, but no wait for a lock that is never free.
  lock = ctypes.create_string_buffer(128)
  library(None).pthread_mutex_lock(lock)
  print('waits', flush=True)
  library(None).pthread_mutex_lock(lock)

with signals.obey():
"""
# `CDLL` lets other threads run while C waits; `PyDLL` keeps Python's lock, as
# TensorFlow does while it sends a function to a task that is stopped.
WAITS = {
  OTHERS_RUN: """
  with signals.stop_at_signal() as stop:
    stop.doing, stop.saved = 'step 3', 2
    wait(ctypes.CDLL)
""",
  'lock is held': """
  with signals.stop_at_signal() as stop:
    stop.saved = 2
    with watchdog.limit(tasks, 10000, 'step 3'):
      wait(ctypes.PyDLL)
""",
  'lock is held later': """
  with signals.stop_at_signal() as stop:
    stop.saved = 2
    with watchdog.limit(tasks, 10000, 'step 3'):
      print('waits', flush=True)
      while not (stop.signal and signals.taken()):
        time.sleep(0.01)
      wait(ctypes.PyDLL)
""",
}
# As TensorFlow does where processes join.
TAKES_THE_SIGNAL_AWAY = """
  with watchdog.limit_start(tasks, 10000, 'Start'):
    with signals.block_while_joining():
      for number in signals.NUMBERS:
        ctypes.CDLL(None).signal(int(number), ctypes.c_void_p(1))
      wait(ctypes.PyDLL)
"""


# All waits with one signal, and all signals with one wait.
CASES = [
  pytest.param(
    *(wait, number),
    id=f'{wait}-{number.name}',
    marks=[pytest.mark.slow]
    if wait != OTHERS_RUN and number != signal.SIGTERM
    else [],
  )
  for wait in WAITS
  for number in signals.NUMBERS
]


class Script:
  """A process that runs a script after `BEGIN`, to its first line."""

  def __init__(self, script, seconds):
    self._process = subprocess.Popen(
      [sys.executable, '-c', BEGIN + script],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      env=os.environ | {signal_guard.VARIABLE: str(seconds)},
    )
    self.first = self._process.stdout.readline()
    self.number = self._process.pid

  def __enter__(self):
    return self

  def __exit__(self, *error):
    self._process.kill()
    self._process.communicate()

  def line(self):
    return self._process.stdout.readline()

  def send(self, number):
    self._process.send_signal(number)

  def send_until_it_ends(self, number):
    while self._process.poll() is None:
      self._process.send_signal(number)
      select.select([], [], [], 0.2)

  def end(self):
    """(Exit code, the line that it ends with)."""
    _, errors = self._process.communicate(timeout=LIMIT)
    lines = [line for line in errors.splitlines() if line.startswith('error: ')]
    return self._process.returncode, lines


def end_by_one(script, number, seconds):
  """How a script ends after one signal."""
  with Script(script, seconds) as run:
    run.send(number)
    return run.end()


def end_by_two(script, number):
  """How a script ends after as many signals as it takes."""
  with Script(script, seconds=10000) as run:
    run.send_until_it_ends(number)
    return run.end()


class Ends:
  """How scripts end, by their waits and signals; each runs once."""

  def __init__(self, pool):
    self._pool, self._one, self._two = pool, {}, {}

  def start(self, wait, number):
    if (wait, number) not in self._one:
      self._one[wait, number] = self._pool.submit(
        end_by_one, WAITS[wait], number, 1
      )
      self._two[wait, number] = self._pool.submit(
        end_by_two, WAITS[wait], number
      )

  def after_one(self, wait, number):
    self.start(wait, number)
    return self._one[wait, number].result()

  def after_two(self, wait, number):
    self.start(wait, number)
    return self._two[wait, number].result()


@pytest.fixture(scope='module')
def ends():
  """The cases of the gate run at the same time: most of it is waiting."""
  with concurrent.futures.ThreadPoolExecutor(16) as pool:
    found = Ends(pool)
    for case in CASES:
      if not case.marks:
        found.start(*case.values)
    yield found


@pytest.mark.parametrize(('wait', 'number'), CASES)
def test_an_endless_wait_ends_after_a_signal(ends, wait, number):
  assert ends.after_one(wait, number) == (
    128 + number,
    [
      f'error: stopped: expected step 3 to end within 1 s of {number.name}, '
      'it did not; the last checkpoint is from step 2; the same command '
      'continues'
    ],
  )


@pytest.mark.parametrize(('wait', 'number'), CASES)
def test_a_second_signal_ends_the_process_at_once(ends, wait, number):
  code, (line,) = ends.after_two(wait, number)
  assert code == 128 + number
  assert f'a second signal, {number.name}, while waiting for step 3' in line


@pytest.mark.parametrize('number', NUMBERS)
def test_another_handler_hides_no_signal_while_processes_join(number):
  code, (line,) = end_by_one(TAKES_THE_SIGNAL_AWAY, number, 10000)
  assert code == 128 + number
  assert f'expected Start to end within 1 s of {number.name}' in line


def test_a_signal_and_its_second_are_obeyed_while_tensorflow_is_imported():
  # Importing takes longer than a test can rely on; waiting is the same to it.
  script = """
  try:
    with signals.block_while_importing():
      print('waits', flush=True)
      while True:
        time.sleep(0.01)
  except signals.Interrupted as error:
    print(signal.Signals(error.number).name, flush=True)
    wait(ctypes.CDLL)
"""
  with Script(script, seconds=10000) as run:
    run.send(signal.SIGINT)
    assert run.line() == 'SIGINT\n'
    run.send_until_it_ends(signal.SIGINT)
    code, (line,) = run.end()
  assert code == 128 + signal.SIGINT
  assert 'a second signal, SIGINT' in line


def test_threads_that_start_while_tensorflow_is_imported_get_no_signal():
  script = """
  import threading
  masks = []
  look = lambda: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
  with signals.block_while_importing():
    thread = threading.Thread(target=look)
    thread.start()
  thread.join()
  look()
  print([sorted(map(int, mask)) for mask in masks], flush=True)
"""
  with Script(script, seconds=10000) as run:
    assert run.first == '[[2, 15], []]\n'


def test_a_handler_that_raises_leaves_no_signal_blocked(monkeypatch):
  real = signal.pthread_sigmask

  def masks(how, numbers):
    before = real(how, numbers)
    # As the real one does for a signal that came just before.
    if numbers == signal_guard.NUMBERS:
      raise signals.Interrupted(signal.SIGTERM)
    return before

  before = real(signal.SIG_BLOCK, ())
  monkeypatch.setattr(signal, 'pthread_sigmask', masks)
  with pytest.raises(signals.Interrupted), signal_guard.block_signals():
    pytest.fail('began')
  after = real(signal.SIG_SETMASK, before)
  assert after == before


def test_handlers_are_restored_after_processes_have_joined():
  script = """
  with signals.block_while_joining():
    ctypes.CDLL(None).signal(int(signal.SIGTERM), ctypes.c_void_p(1))
  try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10000)
  except signals.Interrupted as error:
    print(error.number, flush=True)
"""
  with Script(script, seconds=10000) as run:
    assert run.first == '15\n'
    assert run.end() == (0, [])


def test_child_processes_end_even_if_they_ignore_signals():
  script = """
  deaf = 'import signal, time; signal.signal(15, signal.SIG_IGN); '
  deaf += 'print(1, flush=True); time.sleep(10000)'
  child = subprocess.Popen(
    [sys.executable, '-c', deaf], stdout=subprocess.PIPE, start_new_session=True
  )
  child.stdout.readline()
  with signals.stop_at_signal():
    print(child.pid, flush=True)
    wait(ctypes.CDLL)
"""
  with Script(script, seconds=1) as run:
    child = os.pidfd_open(int(run.first))
    run.send(signal.SIGTERM)
    code, _ = run.end()
  assert code == 128 + signal.SIGTERM
  # On a busy machine a killed process needs a moment to end.
  ended, _, _ = select.select([child], [], [], 60)
  os.close(child)
  assert ended


def test_a_block_that_checks_for_a_stop_ends_normally():
  script = """
  with signals.stop_at_signal() as stop:
    print('waits', flush=True)
    while not stop.agreed:
      time.sleep(0.05)
  print(stop.agreed, flush=True)
"""
  with Script(script, seconds=10000) as run:
    run.send(signal.SIGINT)
    assert run.end() == (0, [])


def test_a_program_without_a_signal_leaves_no_handlers():
  before = [signal.getsignal(number) for number in signals.NUMBERS]
  descriptor = signal.set_wakeup_fd(-1)
  signal.set_wakeup_fd(descriptor)
  for _ in range(2):
    with signals.obey():
      assert signals.guard() is not None
  assert signals.guard() is None
  assert [signal.getsignal(number) for number in signals.NUMBERS] == before
  assert signal.set_wakeup_fd(descriptor) == descriptor


@pytest.mark.parametrize(
  ('came', 'second'),
  [
    ([(signal.SIGTERM, 0)], None),
    ([(signal.SIGTERM, 0), (signal.SIGTERM, 1.1)], signal.SIGTERM),
    # That of systemd or Slurm to all processes of a job, and that of a launcher
    # among them.
    ([(signal.SIGTERM, 0), (signal.SIGTERM, 0.1)], None),
    ([(signal.SIGTERM, 0), (signal.SIGTERM, 0), (signal.SIGTERM, 5)], 15),
    # A terminal's, and that of the script that it interrupted.
    ([(signal.SIGINT, 0), (signal.SIGTERM, 0.1)], None),
    ([(signal.SIGINT, 0), (signal.SIGTERM, 5)], signal.SIGTERM),
    ([(signal.SIGCHLD, 0), (signal.SIGTERM, 5)], None),
  ],
)
def test_two_requests_are_distinguished_from_one(came, second):
  requests = signal_guard.Requests()
  for number, when in came:
    requests.add(number, when)
  assert requests.second == second


def test_processes_end_within_thirty_seconds_and_children_earlier(monkeypatch):
  monkeypatch.delenv(signal_guard.VARIABLE, raising=False)
  assert signal_guard.seconds() < 30
  default = signal_guard.seconds()
  monkeypatch.setenv(*signals.environment().popitem())
  assert 20 < signal_guard.seconds() < default
  monkeypatch.setenv(signal_guard.VARIABLE, 'many')
  assert signal_guard.seconds() == default
