"""Collectives of several processes, as threads, do what exchanges promise.

Real processes are slow; see `test_collective_conformance.py`.
"""

import pytest

from terngrad.exchange import algorithms
from terngrad.exchange import collective
from terngrad.exchange import group
from tests.exchange import conformance
from tests.exchange import small_process
from tests.exchange import test_collective_conformance as of_processes
from tests.exchange import threads

CASES = [
  pytest.param(
    *(name, algorithm),
    marks=[] if name in conformance.QUICK else pytest.mark.slow,
  )
  for algorithm, rounds in of_processes.ROUNDS_OF_ALGORITHMS.items()
  for name in rounds
]


class OfThreads(conformance.ExchangeConformance):
  processes = 2
  devices = 1
  algorithm = algorithms.AUTO

  def each(self, function):
    names = tuple(f'/CPU:{i}' for i in range(self.devices))

    def of_one(member):
      return function(
        collective.Collective(member, names, self.num_workers, self.algorithm)
      )

    return threads.run(self.processes, small_process.PIECE, of_one)

  def shared(self):
    return self.each(conformance.share)

  def received_examples(self):
    return self.each(conformance.examples)

  def combined(self, name):
    return self.each(lambda exchange: conformance.combine(exchange, name))

  @pytest.mark.gate_every(3)
  @pytest.mark.parametrize(('name', 'algorithm'), CASES)
  def test_every_device_receives_exact_sums_and_words_in_order(
    self, name, algorithm
  ):
    self.algorithm = algorithm
    super().test_every_device_receives_exact_sums_and_words_in_order(name)


@pytest.mark.parametrize(('processes', 'devices'), [(1, 2), (2, 1), (3, 2)])
def test_every_worker_is_on_one_device_of_one_process(processes, devices):
  names = tuple(f'/CPU:{i}' for i in range(devices))
  found = []
  for rank in range(processes):
    joined = group.Group.from_strategy(processes, rank)
    one = collective.Collective(joined, names, 4 * processes)
    homes = {
      worker: index
      for index in one.local_devices
      for worker in one.workers_of(index)
    }
    assert sorted(homes) == list(range(one.first, one.first + 4))
    assert homes == {worker: one.device_of(worker) for worker in homes}
    found += homes
  assert sorted(found) == list(range(4 * processes))


class TestTwoThreads(OfThreads):
  num_workers = 2


class TestTwoThreadsAndTwoDevices(OfThreads):
  num_workers = 6
  devices = 2


@pytest.mark.slow
class TestThreeThreads(OfThreads):
  processes = 3
  num_workers = 3
