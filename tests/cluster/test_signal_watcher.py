import signal
import socket

import pytest

from terngrad.cluster import signal_watcher

SECONDS = 20.0


@pytest.fixture
def pair():
  reader, writer = socket.socketpair()
  with reader, writer:
    yield reader, writer


@pytest.fixture
def clock(monkeypatch):
  """A list of one number, the time that it is."""
  now = [100.0]
  monkeypatch.setattr(signal_watcher.time, 'monotonic', lambda: now[0])
  return now


@pytest.fixture
def watch(pair):
  return signal_watcher.SignalWatcher(0, pair[0].fileno(), SECONDS, {})


def test_an_unread_signal_ends_the_process_in_time(pair, clock, watch):
  assert watch.poll() is None and watch.patience == float('inf')
  pair[1].send(bytes([signal.SIGINT]))
  assert watch.poll() is None and watch.patience < 1
  clock[0] += SECONDS - 0.5
  assert watch.poll() is None
  clock[0] += 1
  assert watch.poll() == signal.SIGINT
  # It only looked.
  assert pair[0].recv(9) == bytes([signal.SIGINT])


def test_a_second_signal_ends_the_process_soon(pair, clock, watch):
  pair[1].send(bytes([signal.SIGTERM]))
  assert watch.poll() is None
  clock[0] += 5
  pair[1].send(bytes([signal.SIGINT]))
  assert watch.poll() is None
  clock[0] += 1.5
  assert watch.poll() == signal.SIGINT


def test_a_signal_that_the_thread_read_is_left_to_the_thread(
  pair, clock, watch
):
  pair[1].send(bytes([signal.SIGTERM]))
  assert watch.poll() is None
  pair[0].recv(1)
  watch.record_first(signal.SIGTERM)
  clock[0] += SECONDS
  assert watch.poll() is None
  # Python's lock stops it since then.
  clock[0] += 5
  assert watch.poll() == signal.SIGTERM


def test_a_second_unread_signal_ends_the_process_soon(pair, clock, watch):
  watch.record_first(signal.SIGTERM)
  clock[0] += 2
  pair[1].send(bytes([signal.SIGTERM]))
  assert watch.poll() is None
  clock[0] += 1.5
  assert watch.poll() == signal.SIGTERM
