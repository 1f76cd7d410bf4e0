import itertools

import pytest
import tensorflow as tf

from slim import errors
from slim.datasets.records import order
from slim.datasets.records import records
from tests.slim import record_files

COUNTS = (7, 5, 9)
TOTAL = sum(COUNTS)
NAMES = [b'%d-%d' % (f, r) for f, n in enumerate(COUNTS) for r in range(n)]


@pytest.fixture
def files(tmp_path):
  """Three files whose records say file and record."""
  names = iter(NAMES)
  for number, count in enumerate(COUNTS):
    payloads = list(itertools.islice(names, count))
    record_files.write(tmp_path / f'train-{number}', payloads)
  return records.scan_all(records.find(tmp_path, 'train'))


def take(files, count, *, seed=3, start=0, window=4):
  """Takes (position, serialized) pairs from a shuffled stream."""
  stream = order.shuffled(files, seed=seed, start=start, window=window)
  return [
    (int(position), serialized)
    for position, serialized in stream.take(count).as_numpy_iterator()
  ]


def epochs(files, count, **options):
  values = [value for _, value in take(files, count * TOTAL, **options)]
  return [values[i : i + TOTAL] for i in range(0, len(values), TOTAL)]


def test_sequential_reading_gives_every_record_once(files):
  pairs = list(order.read_sequentially(files).as_numpy_iterator())
  assert pairs == list(enumerate(NAMES))


@pytest.mark.parametrize('window', [1, 4, TOTAL - 1, TOTAL, 10 * TOTAL])
@pytest.mark.gate_every(2)
def test_every_epoch_is_a_permutation(files, window):
  for epoch in epochs(files, 4, window=window):
    assert sorted(epoch) == sorted(NAMES)


def test_epochs_and_seeds_have_different_orders(files):
  orders = [
    tuple(epoch)
    for seed in (0, -5, 2**62)
    for epoch in epochs(files, 4, seed=seed)
  ]
  assert len(set(orders)) == len(orders)


def test_an_epoch_s_order_does_not_depend_on_the_epochs_before(files):
  third = epochs(files, 3)[2]
  assert [value for _, value in take(files, TOTAL, start=2 * TOTAL)] == third


@pytest.mark.parametrize(
  'window',
  [
    pytest.param(1, marks=pytest.mark.slow),
    4,
    pytest.param(TOTAL, marks=pytest.mark.slow),
  ],
)
def test_a_stream_from_a_position_is_the_rest_of_the_stream_from_zero(
  files, window
):
  length = 2 * TOTAL + 5
  whole = take(files, length, window=window)
  assert [position for position, _ in whole] == list(range(length))
  # At borders of windows (multiples of 4) and of epochs (of 21), and within.
  for start in (4, 5, 21, 45):
    rest = take(files, length - start, start=start, window=window)
    assert rest == whole[start:], start


@pytest.mark.parametrize('window', [4, TOTAL])
def test_references_resolve_to_the_records_of_the_shuffled_stream(
  files, window
):
  stream = order.shuffled_references(files, seed=3, start=5, window=window)
  # Past the end of an epoch, and kept while later windows are read.
  references = list(stream.take(2 * TOTAL))
  pairs = [
    (int(position), reference.serialized().numpy())
    for position, reference in references
  ]
  assert pairs == take(files, 2 * TOTAL, start=5, window=window)


def test_references_of_a_window_share_its_strings(files):
  """The strings themselves would be in the element."""
  stream = order.shuffled_references(files, seed=3, start=0, window=4)
  _, spec = stream.element_spec
  assert (spec.window.dtype, spec.window.shape.rank) == (tf.variant, 0)


def test_a_distant_position_is_reached(files):
  start = 10**12 * TOTAL + 3
  pairs = take(files, 2, start=start)
  assert [position for position, _ in pairs] == [start, start + 1]


def test_files_are_read_in_different_orders(files):
  firsts = {epoch[0][:1] for epoch in epochs(files, 20, window=1)}
  assert firsts == {b'0', b'1', b'2'}


def test_records_stay_in_their_window(files):
  for epoch in epochs(files, 3, window=1):
    numbers = [[v for v in epoch if v[:1] == b'%d' % f] for f in range(3)]
    assert sorted(sum(numbers, [])) == sorted(NAMES)
    assert all(group == sorted(group) for group in numbers)


def test_every_order_of_three_records_occurs(tmp_path):
  record_files.write(tmp_path / 'train-0', [b'a', b'b', b'c'])
  one = records.scan_all(records.find(tmp_path, 'train'))
  values = [value for _, value in take(one, 3 * 240, window=3)]
  orders = [b''.join(values[i : i + 3]) for i in range(0, len(values), 3)]
  # Each of six is expected 40 times, with a standard deviation of 5.8.
  counts = [orders.count(bytes(p)) for p in itertools.permutations(b'abc')]
  assert sum(counts) == 240
  assert all(17 <= count <= 63 for count in counts), counts


def test_the_order_is_pinned(files):
  """A run that is resumed with another TensorFlow sees the same order."""
  expected = """
    0-1 0-3 0-2 0-0 0-6 0-5 2-0
    0-4 2-2 2-1 2-4 2-3 2-7 2-6
    2-5 2-8 1-3 1-0 1-1 1-2 1-4
  """.split()
  assert [v.decode() for _, v in take(files, TOTAL, seed=1)] == expected


@pytest.mark.parametrize('num_workers', [1, 2, 3, 5, TOTAL])
@pytest.mark.gate_every(2)
def test_parts_of_workers_are_the_set_without_overlap(files, num_workers):
  parts = [
    [
      value
      for _, value in order.read_sequentially(
        order.partition_files(files, worker, num_workers)
      ).as_numpy_iterator()
    ]
    for worker in range(num_workers)
  ]
  assert sum(parts, []) == NAMES
  sizes = [len(part) for part in parts]
  assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize('num_workers', [1, 2, 5, TOTAL])
def test_indices_of_workers_alternate_and_cover_all(num_workers):
  parts = [
    order.partition_indices(TOTAL, worker, num_workers)
    for worker in range(num_workers)
  ]
  assert sorted(i for part in parts for i in part) == list(range(TOTAL))
  assert [part[0] for part in parts] == list(range(num_workers))
  sizes = [len(part) for part in parts]
  assert max(sizes) - min(sizes) <= 1


def test_a_worker_s_epochs_are_permutations_of_its_part(files):
  # 7 records of the first file, 5 of the second, 9 of the third.
  part = order.partition_files(files, 1, 3)
  assert [(file.first, file.count) for file in part] == [(0, 5), (0, 2)]
  values = [value for _, value in take(part, 3 * 7, window=3)]
  for i in (0, 7, 14):
    assert sorted(values[i : i + 7]) == NAMES[7:14]
  rest = take(part, 16, window=3, start=5)
  assert [value for _, value in rest] == values[5:]


def test_files_before_the_start_are_not_opened(files, tmp_path):
  opened = order.shuffled(files, seed=3, start=0, window=1).take(TOTAL)
  first = next(value for _, value in opened.as_numpy_iterator())
  number = int(first[:1])
  start = COUNTS[number]
  expected = take(files, TOTAL - start, start=start, window=1)
  (tmp_path / f'train-{number}').unlink()
  assert take(files, TOTAL - start, start=start, window=1) == expected


@pytest.mark.parametrize(
  ('worker', 'num_workers', 'message'),
  [
    (3, 3, r'worker: expected a number in \[0, 3\); received 3'),
    (-1, 3, 'worker: expected'),
    (0, TOTAL + 1, f'num_workers: expected at most {TOTAL}.*received 22'),
  ],
)
def test_invalid_parts_are_refused(files, worker, num_workers, message):
  with pytest.raises(errors.DataError, match=message):
    order.partition_files(files, worker, num_workers)
  with pytest.raises(errors.DataError, match=message):
    order.partition_indices(TOTAL, worker, num_workers)


def indices(count, length, *, seed=3, start=0):
  stream = order.shuffled_indices(count, seed=seed, start=start)
  return [
    tuple(map(int, pair)) for pair in stream.take(length).as_numpy_iterator()
  ]


def test_indices_of_every_epoch_are_a_different_permutation():
  values = [index for _, index in indices(13, 4 * 13)]
  orders = [tuple(values[i : i + 13]) for i in range(0, 52, 13)]
  assert all(sorted(one) == list(range(13)) for one in orders)
  assert len(set(orders)) == 4
  assert values != [index for _, index in indices(13, 4 * 13, seed=4)]


def test_indices_from_a_position_are_the_rest_of_those_from_zero():
  whole = indices(13, 30)
  assert [position for position, _ in whole] == list(range(30))
  for start in (1, 13, 27):
    assert indices(13, 30 - start, start=start) == whole[start:]
