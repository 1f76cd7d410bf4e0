"""A rendezvous ends at its time limit, whatever the location does."""

import threading

import pytest

from terngrad.cluster import rendezvous
from terngrad.cluster import spec


class Silent:
  """A location that never answers, as a file system whose server is away."""

  name, remedy = 'the moon', 'Take another.'

  def __init__(self):
    self.ended = threading.Event()

  def entry_name(self, index, count):
    return f'{self.name}, {index} of {count}'

  def sync(self, index, count, address):
    self.ended.wait()


def test_a_silent_location_ends_at_the_time_limit(monkeypatch):
  monkeypatch.setattr(rendezvous, '_MIN_READ_SECONDS', 0.0)
  location = Silent()
  with pytest.raises(spec.ClusterError) as caught:
    rendezvous.join(location, 0, 2, 'a:1', 0.1)
  location.ended.set()
  assert (
    'expected to reach the moon within --start_timeout=0.1 seconds, received: '
    'no complete answer in this time'
  ) in str(caught.value)


def test_errors_of_a_location_are_raised():
  class Full(Silent):
    def sync(self, index, count, address):
      raise spec.ClusterError(f'{count} of others')

  with pytest.raises(spec.ClusterError, match='2 of others'):
    rendezvous.join(Full(), 0, 2, 'a:1', 600)


def test_both_calls_of_a_location_share_the_time_limit(monkeypatch):
  now, limits = [0.0], []
  monkeypatch.setattr(rendezvous.time, 'monotonic', lambda: now[0])

  class Slow(Silent):
    def sync(self, index, count, address):
      now[0] += 29
      return {0: 'a:1', 1: 'b:2'}

    def read_failure(self, index, count):
      return None

  def limit(seconds, function, *arguments):
    limits.append(seconds)
    return function(*arguments)

  monkeypatch.setattr(rendezvous, '_limit', limit)
  rendezvous.join(Slow(), 0, 2, 'a:1', 30)
  assert limits == [30, 1]
