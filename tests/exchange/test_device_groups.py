"""Workers of several devices: one device of each sends, all of them receive."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.exchange import device_groups
from terngrad.exchange import protocol
from terngrad.exchange import server
from terngrad.exchange import towers
from tests.exchange import conformance
from tests.exchange import test_collective_in_threads as in_threads

FOUR = tuple(f'/CPU:{i}' for i in range(4))


def make(devices=FOUR, size=2, **options):
  leaders = towers.Towers(devices[::size], len(devices) // size)
  return device_groups.make(leaders, devices, **options)


def of_servers():
  """Two processes of two devices each, in round-robin order."""
  leaders = server.Servers(towers.Towers(FOUR[:2], 2), FOUR[:1], 2)
  return device_groups.make(leaders, FOUR)


@pytest.mark.slow
class TestGroupsOfTowers(conformance.ExchangeConformance):
  num_workers = 2

  def exchange(self):
    return make()


@pytest.mark.slow
class TestGroupsOfServers(conformance.ExchangeConformance):
  num_workers = 2

  def exchange(self):
    return of_servers()

  def received_examples(self):
    leaders = conformance.examples(of_servers().leaders)
    return [leaders]


@pytest.mark.slow
class TestGroupsOfThreads(in_threads.OfThreads):
  num_workers = 2
  devices = 2

  def each(self, function, algorithm='auto'):
    names = FOUR[:2]

    def grouped(exchange):
      exchange = type(exchange)(exchange.group, names[:1], 2, algorithm)
      return function(device_groups.make(exchange, names))

    return super().each(grouped, algorithm)


@pytest.mark.parametrize(
  ('exchange', 'groups', 'local'),
  [
    (make(), [[0, 1], [2, 3]], [0, 1, 2, 3]),
    (make(size=4), [[0, 1, 2, 3]], [0, 1, 2, 3]),
    (make(size=1), [[0], [1], [2], [3]], [0, 1, 2, 3]),
    # Devices 0 and 2 belong to the first process.
    (of_servers(), [[0, 2], [1, 3]], [0, 2]),
  ],
)
def test_every_device_is_in_the_group_of_one_worker(exchange, groups, local):
  assert exchange.num_workers == len(groups)
  assert list(exchange.local_devices) == local
  leading = device_groups.leading_devices(exchange)
  assert leading == sorted(group[0] for group in groups)
  for worker, group in enumerate(groups):
    assert exchange.device_of(worker) == group[0]
    assert list(exchange.workers_of(group[0])) == [worker]
    assert list(device_groups.group_of(exchange, group[0])) == group
    for helper in group[1:]:
      assert not exchange.workers_of(helper)


def test_groups_of_one_device_are_the_exchange_itself():
  assert make(size=1) == towers.Towers(FOUR, 4)


def test_messages_and_conclusions_arrive_on_every_device():
  exchange = make()
  values = np.array([[1, 2], [3, 4]], np.int32)
  payloads = conformance.of_devices(exchange, values)
  assert len(payloads) == 2
  combined = exchange.combine([methods.gathered(1)] * 2, payloads)
  assert len(combined) == 4
  for index, messages in enumerate(combined):
    rows = [towers.order_by_worker(one.parts) for one in messages]
    np.testing.assert_array_equal(np.concatenate(rows, axis=1), values)
    for one in messages:
      for part in one.all_pieces[0].parts:
        assert part.device.endswith(f'CPU:{index}')
  rows = conformance.of_devices(exchange, values.astype(np.float32))
  _, concluded = exchange.gather_metadata(rows, lambda all_rows: [all_rows])
  for index, (value,) in enumerate(concluded):
    assert value.device.endswith(f'CPU:{index}')


def test_a_device_gets_a_tensor_of_several_messages_once():
  exchange = make()
  words = [tf.zeros([1, 2], tf.int32)] * 2
  combined = exchange.combine([methods.gathered(1)] * 2, words)
  first, second = (message.all_pieces[0].parts for message in combined[1])
  assert first[0] is second[0]


def test_rows_of_devices_are_those_of_their_worker():
  exchange = make(rows_are_devices=True)
  images = tf.range(4.0)[:, tf.newaxis]
  batches = exchange.batches(images, tf.range(4))
  assert len(batches) == 2
  found = [one.for_worker(tf.constant(w)) for w, one in enumerate(batches)]
  assert [[int(n) for n in labels] for _, labels in found] == [[0, 1], [2, 3]]
  assert [[float(i[0]) for i in rows] for rows, _ in found] == [
    [0.0, 1.0],
    [2.0, 3.0],
  ]


def test_values_are_added_in_the_order_of_the_devices():
  rows = [[tf.constant(x)] for x in (1e8, 1.0, -1e8, 2.0)]
  # The 1 is lost in 1e8; in another order it, or the 2, would be too.
  assert float(device_groups.average(rows)[0]) == 0.5
  assert float(device_groups.average(rows[::-1])[0]) == 0.0


@pytest.mark.parametrize('size', [0, 3, 8])
def test_a_number_that_does_not_divide_the_devices_is_refused(size):
  message = f'a divisor of the 4 devices .*, received {size}. Use 4 if'
  with pytest.raises(ValueError, match=message):
    device_groups.check_size(4, size)


def test_groups_are_an_exchange():
  members = {n for n in dir(protocol.Exchange) if not n.startswith('_')}
  assert members <= set(dir(make()))
