"""What layers of all workers tell each other; `tests/step` normalizes by it."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.stages import tracing
from terngrad.exchange import collective
from terngrad.exchange import layer_collectives
from terngrad.exchange import towers
from tests.exchange import threads


def test_every_device_gathers_all_tensors_in_order_in_each_call():
  devices = '/CPU:0', '/CPU:1'
  found = layer_collectives.LayerCollectives(towers.Towers(devices, 2))

  @tracing.function
  def ask(values):
    answers = []
    for index, device in enumerate(devices):
      with tf.device(device):
        answers.append(
          [found.gather(index, factor * values[index]) for factor in (1.0, 2.0)]
        )
    return answers

  values = np.arange(6, dtype=np.float32).reshape([2, 3])
  for once, twice in ask(tf.constant(values)):
    np.testing.assert_array_equal(once, values)
    np.testing.assert_array_equal(twice, 2 * values)


def test_one_worker_gathers_its_tensor():
  alone = layer_collectives.LayerCollectives(towers.Towers(('/CPU:0',), 1))
  np.testing.assert_array_equal(alone.gather(0, tf.constant([3.0])), [[3.0]])


def test_processes_gather_all_tensors_in_order():
  def of_one(group):
    exchange = collective.Collective(group, ('/CPU:0',), 3)
    layers = layer_collectives.LayerCollectives(exchange)
    return layers.gather(0, tf.constant([group.rank, 7.0]))

  for heard in threads.run(3, 50, of_one):
    np.testing.assert_array_equal(heard, [[0, 7], [1, 7], [2, 7]])


@pytest.mark.parametrize('workers', [3, 4])
def test_several_workers_per_device_are_refused(workers):
  exchange = towers.Towers(('/CPU:0', '/CPU:1'), workers)
  with pytest.raises(ValueError, match='one worker per device, 2 in total'):
    layer_collectives.LayerCollectives(exchange)


def test_several_workers_per_process_are_refused():
  def of_one(group):
    exchange = collective.Collective(group, ('/CPU:0', '/CPU:1'), 4)
    with pytest.raises(ValueError, match='one worker per process, 2 in total'):
      layer_collectives.LayerCollectives(exchange)

  threads.run(2, 50, of_one)
