"""Collectives of two and three real processes do what exchanges promise."""

import pickle

import pytest

from terngrad.exchange import algorithms
from tests.exchange import conformance
from tests.exchange import processes

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# What each algorithm moves that others gather; most are in 'mixed'.
ROUNDS_OF_ALGORITHMS = {
  'auto': list(conformance.ROUNDS),
  'gather': ['mixed'],
  'reduce': ['mixed', 'radix64'],
  'two_shot': ['mixed', 'two_bit'],
  'slices': ['mixed', 'float32', 'one float32'],
}


def test_every_algorithm_is_tested():
  assert {*ROUNDS_OF_ALGORITHMS} == {algorithms.AUTO, *algorithms.NAMES}


class OfProcesses(conformance.ExchangeConformance):
  processes = 2
  devices = 1

  @pytest.fixture(scope='class', autouse=True)
  @classmethod
  def run_all(cls, tmp_path_factory):
    folder = tmp_path_factory.mktemp('conformance')
    jobs = [
      {
        'algorithm': algorithm,
        'rounds': rounds,
        'workers': cls.num_workers,
        'devices': cls.devices,
      }
      for algorithm, rounds in ROUNDS_OF_ALGORITHMS.items()
    ]
    for ended in processes.train_small(folder, cls.processes, [], jobs):
      assert ended.code == 0, ended.log
    cls.found = [
      job
      for rank in range(cls.processes)
      for job in pickle.loads((folder / f'{rank}.pickle').read_bytes())
    ]

  def shared(self):
    return [share for share, *_ in self.found]

  def combined(self, name):
    return [rounds[name] for _, rounds, _ in self.found if name in rounds]

  def received_examples(self):
    # Each process tries every algorithm; examples have nothing to do with them.
    num_algorithms = len(ROUNDS_OF_ALGORITHMS)
    return [
      received_examples
      for *_, received_examples in self.found[::num_algorithms]
    ]


class TestTwoProcesses(OfProcesses):
  num_workers = 2


class TestTwoProcessesOfTwoDevices(OfProcesses):
  num_workers = 6
  devices = 2


class TestThreeProcesses(OfProcesses):
  processes = 3
  num_workers = 3
