"""What travels in pieces, and under which keys; real ones are in processes."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.cluster import spec
from terngrad.codec.stages import tracing
from terngrad.exchange import group as groups
from tests.exchange import threads

PIECE = 10


def rows(processes, nodes, columns):
  size = processes * nodes * columns
  return np.arange(size, dtype=np.int32).reshape([processes, nodes, columns])


@pytest.mark.parametrize(
  ('nodes', 'columns', 'most', 'sizes'),
  [
    (1, 19, 16, [19]),
    (1, 20, 16, [10, 10]),
    (1, 35, 16, [12, 12, 11]),
    (2, 21, 16, [6, 6, 6, 3]),
    (1, 35, 2, [18, 17]),
    (1, 35, 1, [35]),
    (1, 1000, 16, [63] * 15 + [55]),
  ],
)
def test_a_large_tensor_is_gathered_in_pieces(nodes, columns, most, sizes):
  values = rows(2, nodes, columns)

  def of_one(group):
    here = tf.constant(values[group.rank])
    return group.all_gather_pieces(here, most), group.all_gather(here)

  for pieces, whole in threads.run(2, PIECE, of_one):
    assert [piece.shape[1] for piece in pieces] == sizes
    np.testing.assert_array_equal(
      np.concatenate(pieces, axis=1), values.reshape([-1, columns])
    )
    np.testing.assert_array_equal(whole, values.reshape([-1, columns]))


def test_borders_of_pieces_of_the_longest_message_are_exact():
  size = tf.constant(2**31 - 1)
  found = [int(groups._part_of(size, number, 16)) for number in range(17)]
  assert found == [(2**31 - 1) * number // 16 for number in range(17)]


@pytest.mark.parametrize('shape', [[50], [2, 5, 5]])
def test_a_tensor_that_is_no_matrix_is_gathered_whole(shape):
  values = np.arange(100, dtype=np.float32).reshape([2, *shape])

  def of_one(group):
    here = tf.constant(values[group.rank])
    return group.all_gather(here), group.all_gather_pieces(here)

  for gathered, (piece,) in threads.run(2, PIECE, of_one):
    np.testing.assert_array_equal(gathered, np.concatenate(values))
    np.testing.assert_array_equal(piece, gathered)


@pytest.mark.parametrize(
  ('columns', 'most', 'count'), [(5, 16, 1), (35, 16, 3), (35, 2, 2)]
)
@pytest.mark.parametrize('index', [0, 1, 2])
def test_every_length_of_all_gather_first_has_separate_keys(
  columns, most, count, index
):
  values = rows(2, 1, columns)
  lengths = [1, columns // 2, columns]

  def of_one(group):
    # Before and behind: a key of these has another shape.
    for _ in lengths:
      group.all_gather(tf.zeros([1, 77], tf.int32))
    pieces = group.all_gather_first(
      tf.constant(values[group.rank]), tf.constant(index), lengths, most
    )
    for _ in lengths:
      group.all_gather(tf.zeros([1, 77], tf.int32))
    return pieces

  for pieces in threads.run(2, PIECE, of_one):
    assert len(pieces) == count
    widths = [piece.shape[1] for piece in pieces]
    assert max(widths) - min(widths) <= 1
    np.testing.assert_array_equal(
      np.concatenate(pieces, axis=1), values[:, 0, : lengths[index]]
    )


def test_one_process_gets_its_tensors_back():
  alone = groups.Group.from_strategy(1, 0)
  values = tf.reshape(tf.range(12), [2, 6])
  for gathered in (
    alone.all_gather(values),
    *alone.all_gather_pieces(values),
    alone.all_reduce(values),
    alone.all_to_all(values),
    *alone.all_gather_first(values, tf.constant(1), [2, 6]),
  ):
    np.testing.assert_array_equal(gathered, values)


@pytest.mark.parametrize('kind', [tf.int32, tf.float32])
def test_all_processes_get_the_bits_of_the_chief(kind):
  bits = np.array([0x7FC00001, -(2**31), 1, 5], np.int32)

  def of_one(group):
    value = tf.bitcast(bits * (1 + group.rank), kind)
    return tf.bitcast(group.broadcast(value), tf.int32)

  for received in threads.run(3, PIECE, of_one):
    np.testing.assert_array_equal(received, bits)


def test_a_collective_has_a_group_key_and_an_instance_key():
  group = groups.Group.from_strategy(3, 1)
  first, second = group._options(), group._options()
  assert first['group_size'] == 3
  assert first['group_key'] == second['group_key']
  assert (first['instance_key'], second['instance_key']) == (1, 2)
  assert group._options(key=9)['instance_key'] == 9
  assert first['communication_hint'] == 'auto'


def test_equal_collectives_are_not_merged():
  group = groups.Group.from_strategy(2, 1)

  @tracing.function
  def several(rows):
    return [group.all_to_all(rows), group.all_gather(rows)]

  graph = several.get_concrete_function(tf.zeros([2, 3], tf.int32)).graph
  collectives = [
    op for op in graph.get_operations() if op.type.startswith('Collective')
  ]
  assert len(collectives) == 2
  assert not any(op.get_attr('is_stateless') for op in collectives)


@pytest.mark.parametrize('communication', groups.COMMUNICATIONS)
def test_gathers_use_the_chosen_communication(communication):
  group = groups.Group.from_strategy(3, 1)
  group._set_up(3, 1, communication, PIECE)
  on_gpus = communication == 'nccl'
  assert group.on_gpus == on_gpus
  # What stays on CPUs beside NCCL goes the runtime's way.
  hint = group._options()['communication_hint']
  assert hint == ('auto' if on_gpus else communication)
  assert groups.COMMUNICATIONS == ('auto', 'ring', 'nccl')


def test_the_default_communication_is_that_of_the_runtime():
  cluster = spec.make({'worker': ['127.0.0.1:1']}, 'worker', 0)
  where = groups.Group(cluster, 1)._options()
  assert (where['group_size'], where['communication_hint']) == (1, 'auto')


def test_the_timeout_is_that_of_the_heartbeats(monkeypatch):
  configured = []
  now = groups.context.context()
  monkeypatch.setattr(
    now, 'configure_coordination_service', lambda **k: configured.append(k)
  )
  groups._wait_for_heartbeats(7.5)
  now.configure_coordination_service(service_type='standalone')
  assert configured == [
    {'service_type': 'standalone', 'heartbeat_timeout_in_ms': 7500}
  ]


@pytest.mark.parametrize('height', [1, 3])
@pytest.mark.parametrize('sizes', [[6], [1, 5], [2, 0, 4]])
def test_columns_are_split_at_the_sizes(height, sizes):
  matrix = np.arange(6 * height).reshape([height, 6])
  parts = groups.columns(tf.constant(matrix), sizes)
  assert [part.shape.as_list() for part in parts] == [
    [height, size] for size in sizes
  ]
  np.testing.assert_array_equal(np.concatenate(parts, axis=1), matrix)
