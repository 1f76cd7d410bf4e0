"""Workers that go at their own pace: real processes and their ends."""

import re

import pytest

from tests.bin import clusters
from tests.bin import programs

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def arguments(data_dir, train_dir, steps, **changes):
  common = clusters.arguments(data_dir, train_dir, steps=steps)
  return [*common, '--sync=False', *programs.as_flags(**changes)]


def test_workers_learn_at_their_own_pace_and_tell_how_late_they_were(
  data_dir, tmp_path
):
  words = arguments(
    data_dir, tmp_path, 90, save_iter=40, scale_learning_rate_by_staleness=True
  )
  with clusters.Cluster(1, 2, words) as cluster:
    cluster.start_all()
    finished = cluster.wait()
  assert {f.code for f in finished.values()} == {0}, finished
  assert programs.checkpoint_steps(tmp_path) == [40, 80, 90]
  out = finished['worker', 0].out
  assert 'Asynchronous: max_staleness=-1' in out
  assert re.search(
    r'Worker 0: .*: step 90, loss = [\d.]+\([\d.]+ examples/sec; [\d.]+  '
    r'sec/batch; [\d.]+ bits/element; staleness [\d.]+, at most \d+; 0 dropped',
    out,
  )
  assert re.search(r'Worker 1: .*: step 30, ', finished['worker', 1].out)
  records = programs.metrics(tmp_path)
  assert [r['step'] for r in records] == [30, 40, 60, 80, 90]
  # The other worker is always at work on older parameters.
  assert any(r['staleness'] > 0 for r in records)
  assert all(r['largest_staleness'] >= r['staleness'] for r in records)
  first, last = records[0], records[-1]
  assert last['entropy_loss_smoothed'] < first['entropy_loss_smoothed']


def test_late_gradients_are_dropped_and_a_lost_worker_costs_no_run(
  data_dir, tmp_path
):
  words = arguments(data_dir, tmp_path, 90, save_iter=30, max_staleness=0)
  with clusters.Cluster(1, 2, words) as cluster:
    cluster.start_all()
    cluster.chief.read_until('step 30,')
    cluster.restart('worker', 1)
    cluster.chief.read_until(r'worker 1 .*; beginning anew')
    cluster.chief.read_until('restored .*model.ckpt')
    finished = cluster.wait()
  assert {f.code for f in finished.values()} == {0}, finished
  records = programs.metrics(tmp_path)
  assert records[-1]['step'] == 90
  assert {r['largest_staleness'] for r in records} == {0}
  assert sum(r['dropped_gradients'] for r in records) > 0
