"""The exchange of a strategy's replicas; `tests/keras` trains with them."""

import pytest
import tensorflow as tf

from terngrad.exchange import collective
from terngrad.exchange import device_groups
from terngrad.exchange import strategies
from terngrad.exchange import towers

DEVICES = '/CPU:0', '/CPU:1'


def exchange_of(strategy, num_workers=None):
  with strategy.scope():
    return strategies.find_exchange(strategy, '/CPU:2', num_workers)


@pytest.mark.parametrize(('virtual', 'workers'), [(None, 1), (4, 4)])
def test_without_a_strategy_workers_are_virtual(virtual, workers):
  found = strategies.find_exchange(
    tf.distribute.get_strategy(), 'here', virtual
  )
  assert found == towers.Towers(('here',), workers)


@pytest.mark.parametrize(('virtual', 'workers'), [(None, 1), (4, 4)])
def test_one_replica_may_have_virtual_workers(virtual, workers):
  found = exchange_of(tf.distribute.OneDeviceStrategy('/CPU:1'), virtual)
  assert found.num_workers == workers
  assert len(found.devices) == 1 and found.devices[0].endswith('CPU:1')


def test_replicas_of_one_process_are_towers():
  strategy = tf.distribute.MirroredStrategy(DEVICES)
  found = exchange_of(strategy)
  assert isinstance(found, towers.Towers)
  assert found.num_workers == 2
  assert [name[-5:] for name in found.devices] == ['CPU:0', 'CPU:1']
  with pytest.raises(ValueError, match='whose 2 replicas are the workers'):
    exchange_of(strategy, 4)


def test_replicas_of_a_process_may_be_one_worker():
  strategy = tf.distribute.MirroredStrategy(DEVICES)
  with strategy.scope():
    found = strategies.find_exchange(strategy, '/CPU:2', devices_per_worker=2)
    with pytest.raises(ValueError, match='divisor of the 2 devices .* 3'):
      strategies.find_exchange(strategy, '/CPU:2', devices_per_worker=3)
  assert isinstance(found, device_groups.DeviceGroups)
  assert found.num_workers == 1
  assert [name[-5:] for name in found.devices] == ['CPU:0', 'CPU:1']
  with pytest.raises(ValueError, match='divisor of the 1 devices'):
    strategies.find_exchange(
      tf.distribute.get_strategy(), '/CPU:2', devices_per_worker=2
    )


def test_a_strategy_of_another_kind_is_refused():
  strategy = tf.distribute.experimental.CentralStorageStrategy(DEVICES)
  with pytest.raises(ValueError, match='received CentralStorageStrategy'):
    exchange_of(strategy)


@pytest.mark.parametrize(
  ('jobs', 'task', 'expected'),
  [
    ({}, ('worker', 0), (1, 0)),
    ({'worker': ['a:1']}, ('worker', 0), (1, 0)),
    ({'worker': ['a:1', 'b:1']}, ('worker', 1), (2, 1)),
    ({'chief': ['a:1'], 'worker': ['b:1']}, ('chief', 0), (2, 0)),
    ({'chief': ['a:1'], 'worker': ['b:1', 'c:1']}, ('worker', 1), (3, 2)),
  ],
)
def test_processes_are_the_chief_and_then_the_workers(jobs, task, expected):
  resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec(jobs), task_type=task[0], task_id=task[1]
  )
  assert strategies._processes(resolver) == expected
  assert strategies._processes(None) == (1, 0)


class _OfTwoProcesses(tf.distribute.MultiWorkerMirroredStrategy):
  """One that has joined; to join, a process must be new."""

  def __init__(self):
    self._known = tf.distribute.MirroredStrategy(DEVICES)

  num_replicas_in_sync = 4

  @property
  def extended(self):
    return self._known.extended

  @property
  def cluster_resolver(self):
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
      tf.train.ClusterSpec({'worker': ['a:1', 'b:1']}),
      task_type='worker',
      task_id=1,
    )


def test_replicas_of_several_processes_share_one_group():
  strategy = _OfTwoProcesses()
  with tf.distribute.MirroredStrategy(DEVICES).scope():
    one, other = (
      strategies.find_exchange(strategy, '/CPU:2') for _ in range(2)
    )
  assert isinstance(one, collective.Collective)
  assert one.num_workers == 4
  assert (one.group.size, one.group.rank) == (2, 1)
  # Collectives are told apart by their number in it.
  assert other.group is one.group


def test_processes_of_several_devices_are_one_worker_each():
  strategy = _OfTwoProcesses()
  with tf.distribute.MirroredStrategy(DEVICES).scope():
    found = strategies.find_exchange(strategy, '/CPU:2', devices_per_worker=2)
  assert isinstance(found.leaders, collective.Collective)
  assert (found.num_workers, found.first, found.size) == (2, 1, 2)
  assert list(found.workers_of(0)) == [1] and not found.workers_of(1)
