"""Exchanges of one process keep to what exchanges promise.

Parameter servers are devices of this process here; in others they are what
`tests/bin/test_distributed_train.py` and `tests/bits` run.
"""

import types

import pytest

from terngrad.cluster import spec
from terngrad.exchange import algorithms
from terngrad.exchange import collective
from terngrad.exchange import group
from terngrad.exchange import server
from terngrad.exchange import towers
from terngrad.reduce import reducer
from tests.exchange import conformance


def alone():
  """The group of one process."""
  return group.Group(spec.make({'worker': ['127.0.0.1:1']}, 'worker', 0), 1)


class OfTowers(conformance.ExchangeConformance):
  num_workers = 4
  devices = 1

  def exchange(self):
    names = tuple(f'/CPU:{i}' for i in range(self.devices))
    return towers.Towers(names, self.num_workers)


class TestOneTower(OfTowers):
  pass


class TestTwoTowers(OfTowers):
  devices = 2


# tests/exchange/test_towers.py has three and four.
@pytest.mark.slow
class TestThreeTowers(OfTowers):
  devices = 3


class TestOneWorkerAlone(OfTowers):
  num_workers = 1


class OfServers(conformance.ExchangeConformance):
  num_workers = 4
  servers = 1

  def exchange(self):
    # Two processes of a device each, or of as many as there are workers.
    devices = tuple(f'/CPU:{i}' for i in range(min(2, self.num_workers)))
    names = tuple(f'/CPU:{3 - i}' for i in range(self.servers))
    return server.Servers(
      towers.Towers(devices, self.num_workers), names, len(devices)
    )


@pytest.mark.slow
class TestOneServer(OfServers):
  pass


class TestTwoServers(OfServers):
  servers = 2
  num_workers = 3


@pytest.mark.slow
class TestAServerOfOneWorker(OfServers):
  num_workers = 1


class OfOneProcess:
  num_workers = 3
  devices = 1
  algorithm = algorithms.AUTO

  def exchange(self):
    names = tuple(f'/CPU:{i}' for i in range(self.devices))
    return collective.Collective(
      alone(), names, self.num_workers, self.algorithm
    )


class TestOneProcess(OfOneProcess, conformance.ExchangeConformance):
  devices = 2


@pytest.mark.slow
class TestOneProcessOfOneWorker(OfOneProcess, conformance.ExchangeConformance):
  num_workers = 1


# Rows do not depend on the algorithm.
class TestOneDevice(OfOneProcess, conformance.RowsConformance):
  pass


@pytest.mark.parametrize('algorithm', algorithms.NAMES)
class TestEveryAlgorithm(OfOneProcess, conformance.SumsConformance):
  @pytest.fixture(autouse=True)
  def choose(self, algorithm):
    self.algorithm = algorithm


def test_old_names_of_a_collective_give_warnings():
  exchange = collective.Collective(alone(), ('/CPU:0',), 2)
  with pytest.warns(DeprecationWarning, match='own .* Use num_local_workers'):
    assert exchange.own == 2
  with pytest.warns(DeprecationWarning, match='told .* Use describe_plan'):
    assert exchange.told([]) == exchange.describe_plan([])


def test_an_exchange_with_the_name_of_0_2_is_refused():
  exchange = types.SimpleNamespace(own=2)
  with pytest.raises(TypeError, match='expected num_local_workers, whose name'):
    reducer.Reducer(None, exchange, [], 0)
