import numpy as np
import pytest
import tensorflow as tf

from terngrad.exchange import towers


def make(num_devices, num_workers):
  names = tuple(f'/CPU:{i}' for i in range(num_devices))
  return towers.Towers(names, num_workers)


def parts_of(layout, values):
  """What each device has to send, of one value a worker."""
  parts = []
  for place, device in enumerate(layout.devices):
    with tf.device(device):
      chosen = [values[worker] for worker in layout.workers_of(place)]
      parts.append(tf.stack(chosen))
  return parts


@pytest.mark.parametrize('workers', [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize('devices', [1, 2, 3, 4])
def test_every_worker_lives_on_one_device_and_is_sent_once(devices, workers):
  if workers < devices:
    pytest.skip('a device without a worker is not a layout')
  layout = make(devices, workers)
  homes = [layout.place_of(worker) for worker in range(workers)]
  for place in range(devices):
    assert list(layout.workers_of(place)) == [
      worker for worker, home in enumerate(homes) if home == place
    ]
  values = [tf.constant([worker, -worker]) for worker in range(workers)]
  for received in towers.send(layout, parts_of(layout, values)):
    np.testing.assert_array_equal(towers.in_order(received), values)


def test_what_is_sent_arrives_on_each_device():
  layout = make(3, 3)
  received = towers.send(layout, parts_of(layout, [tf.constant([1.0])] * 3))
  for place, parts in enumerate(received):
    for part in parts:
      assert part.device.endswith(f'CPU:{place}')


def test_every_device_is_told_every_workers_row():
  layout = make(2, 3)
  rows = [tf.constant(row) for row in ([1.0, 5.0], [3.0, 2.0], [2.0, 4.0])]
  for told in layout.share(parts_of(layout, rows)):
    np.testing.assert_array_equal(told, rows)
