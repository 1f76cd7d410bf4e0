"""Bytes of a step, against what the paper and a ring need."""

import pytest

from terngrad.exchange import algorithms
from terngrad.measure import bytes_table

SHAPES = [(1000, 1000), (10_000,)]
SIZE = 1_010_000
MEGABYTE = 2**20


def row(text, workers):
  (found,) = bytes_table.table([text], SHAPES, [workers]).to_dict('records')
  return found


@pytest.mark.parametrize('workers', [1, 2, 8, 64])
def test_float32_in_slices_sends_as_much_as_a_ring(workers):
  found = row('identity', workers)
  assert found['gather'] == 4 * SIZE * (workers - 1) / MEGABYTE
  ring = 2 * (workers - 1) / workers * 4 * SIZE / MEGABYTE
  assert found.get('slices', ring) == pytest.approx(ring, rel=1e-4)
  assert found['auto'] <= ring * 1.0001 or workers == 2


def test_few_workers_gather_ternary_and_many_sum_it():
  two, many = row('ternary', 2), row('ternary', 64)
  assert two['auto'] == pytest.approx(0.2 * SIZE / MEGABYTE, rel=1e-3)
  assert (two['by'], many['by']) == ('gather', 'two_shot')
  # 1.6 bits there, and log2(129) and a little back, but for one of 64.
  assert many['auto'] < (1.6 + 8.1) / 8 * SIZE / MEGABYTE
  assert many['gather'] > 12 * MEGABYTE / MEGABYTE


def test_workers_push_words_to_servers_and_pull_sums():
  found = row('ternary', 2)
  assert found['push'] == pytest.approx(0.2 * SIZE / MEGABYTE, rel=1e-3)
  # Five levels: 13 a word.
  assert found['pull'] == pytest.approx(4 / 13 * SIZE / MEGABYTE, rel=1e-3)


def test_all_messages_of_a_method_are_counted():
  found = row('powersgd', 2)
  assert found['gather'] == 4 * (1000 + 10_000 + 1000) / MEGABYTE
  assert set(found['by'].split(', ')) <= {*algorithms.NAMES}
