"""A meeting's end does not depend on its place."""

import threading

import pytest

from terngrad.cluster import rendezvous
from terngrad.cluster import spec


class Silent:
  """A place that never answers, as a file system whose server is away."""

  name, another = 'the moon', 'Take another.'

  def __init__(self):
    self.ended = threading.Event()

  def where(self, index, count):
    return f'{self.name}, {index} of {count}'

  def look(self, index, count, address):
    self.ended.wait()


def test_a_place_that_never_answers_does_not_outlast_the_meeting(monkeypatch):
  monkeypatch.setattr(rendezvous, '_LEAST', 0.0)
  place = Silent()
  with pytest.raises(spec.ClusterError) as caught:
    rendezvous.meet(place, 0, 2, 'a:1', 0.1)
  place.ended.set()
  assert (
    'expected to reach the moon within --start_timeout=0.1 seconds, received: '
    'no complete answer in this time'
  ) in str(caught.value)


def test_what_a_place_raises_is_raised():
  class Full(Silent):
    def look(self, index, count, address):
      raise spec.ClusterError(f'{count} of others')

  with pytest.raises(spec.ClusterError, match='2 of others'):
    rendezvous.meet(Full(), 0, 2, 'a:1', 600)
