import numpy as np
import pytest

from terngrad.codec import method as methods
from terngrad.exchange import towers
from tests.exchange import conformance


def make(num_devices, num_workers):
  names = tuple(f'/CPU:{i}' for i in range(num_devices))
  return towers.Towers(names, num_workers)


@pytest.mark.parametrize('workers', [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize('devices', [1, 2, 3, 4])
def test_every_worker_is_on_one_device_and_sends_once(devices, workers):
  if workers < devices:
    pytest.skip('a device without a worker is not a layout')
  layout = make(devices, workers)
  homes = [layout.device_of(worker) for worker in range(workers)]
  for index in range(devices):
    assert list(layout.workers_of(index)) == [
      worker for worker, home in enumerate(homes) if home == index
    ]
  values = np.array([[worker, -worker] for worker in range(workers)], np.int32)
  payloads = conformance.of_devices(layout, values)
  for (received,) in layout.combine([methods.gathered(2)], payloads):
    np.testing.assert_array_equal(
      towers.order_by_worker(received.parts), values
    )


def test_messages_arrive_on_each_device():
  layout = make(3, 3)
  payloads = conformance.of_devices(layout, np.ones([3, 1], np.int32))
  combined = layout.combine([methods.gathered(1)], payloads)
  for index, (received,) in enumerate(combined):
    for part in received.parts:
      assert part.device.endswith(f'CPU:{index}')


def test_every_device_calls_conclude_locally():
  layout = make(2, 3)
  rows = np.array([[1.0, 5.0], [3.0, 2.0], [2.0, 4.0]], np.float32)
  all_rows, concluded = layout.gather_metadata(
    conformance.of_devices(layout, rows), lambda rows: rows + 1.0
  )
  np.testing.assert_array_equal(all_rows, rows)
  for index, conclusion in enumerate(concluded):
    np.testing.assert_array_equal(conclusion, rows + 1.0)
    assert conclusion.device.endswith(f'CPU:{index}')


def test_the_old_name_of_num_local_workers_gives_a_warning():
  with pytest.warns(DeprecationWarning, match='Use num_local_workers') as found:
    assert make(2, 3).own == 3
  assert found[0].filename == __file__
