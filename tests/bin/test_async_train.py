"""Workers that are not waited for: real processes and their ends."""

import json
import re
import signal

import pytest
import tensorflow as tf

from terngrad.cluster import watchdog
from tests.bin import clusters
from tests.bin import programs

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def arguments(data_dir, train_dir, steps, **changes):
  common = clusters.arguments(data_dir, train_dir, steps=steps)
  return [*common, *programs.as_flags(**changes)]


def test_asynchronous_workers_learn_and_log_their_staleness(data_dir, tmp_path):
  words = arguments(
    data_dir,
    tmp_path,
    90,
    sync=False,
    save_iter=40,
    scale_learning_rate_by_staleness=True,
  )
  # Two servers share the parameters.
  finished = clusters.complete(2, 2, words)
  assert programs.checkpoint_steps(tmp_path) == [40, 80, 90]
  out = finished['worker', 0].out
  assert 'Asynchronous: max_staleness=-1' in out
  assert re.search(
    r'Worker 0: .*: step 90, loss = [\d.]+ \([\d.]+ examples/sec; [\d.]+ '
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


def test_late_gradients_are_dropped_and_a_lost_worker_does_not_end_the_run(
  data_dir, tmp_path
):
  words = arguments(
    data_dir, tmp_path, 90, sync=False, save_iter=30, max_staleness=0
  )
  with clusters.Cluster(1, 2, words) as cluster:
    cluster.start_all()
    cluster.chief.read_until('step 30,')
    cluster.restart('worker', 1)
    cluster.chief.read_until(r'worker 1 .*; restarting')
    cluster.chief.read_until('restored .*model.ckpt')
    finished = cluster.wait()
  assert {f.code for f in finished.values()} == {0}, finished
  records = programs.metrics(tmp_path)
  assert records[-1]['step'] == 90
  assert {r['largest_staleness'] for r in records} == {0}
  assert sum(r['dropped_gradients'] for r in records) > 0


def test_a_step_of_two_of_three_workers_drops_the_late_gradient(
  data_dir, tmp_path
):
  words = arguments(
    data_dir, tmp_path, 90, save_iter=40, num_replicas_to_aggregate=2
  )
  finished = clusters.complete(1, 3, words)
  assert programs.checkpoint_steps(tmp_path) == [40, 80, 90]
  out = finished['worker', 0].out
  assert 'replicas_to_aggregate=2; total_num_replicas=3' in out
  assert 'two runs are not bit-identical' in out
  assert re.search(
    r'Worker 0: .*: step 90, loss = [\d.]+ \([\d.]+ examples/sec; [\d.]+ '
    r'sec/batch; [\d.]+ bits/element; \d+ dropped',
    out,
  )
  records = programs.metrics(tmp_path)
  assert sum(r['dropped_gradients'] for r in records) > 0
  assert {r['largest_staleness'] for r in records} == {0}
  assert all(1 < r['bits_per_element'] < 4 for r in records)
  first, last = records[0], records[-1]
  assert last['entropy_loss_smoothed'] < first['entropy_loss_smoothed']
  reader = tf.train.load_checkpoint(str(tmp_path / 'model.ckpt-90'))
  layout = json.loads(reader.get_tensor('layout/.ATTRIBUTES/VARIABLE_VALUE'))
  # Two batches of 4 examples make a step.
  assert layout['batch_size'] == 8


def test_a_stopped_worker_is_named_though_others_go_on(data_dir, tmp_path):
  words = arguments(data_dir, tmp_path, 100000, sync=False, step_timeout=40)
  with clusters.Cluster(1, 2, words) as cluster:
    cluster.start_all()
    cluster.chief.read_until('step 30,')
    cluster.tasks['worker', 1].send(signal.SIGSTOP)
    finished = cluster.chief.wait()
  assert finished.code == watchdog.LOST
  # It was stopped while it pushed, or while the chief let it pull.
  assert re.search(r'(Worker 1|Step \d+): expected every task', finished.err)
  assert 'received no answer from worker 1 (localhost' in finished.err


@pytest.mark.parametrize('sync', [False, True])
def test_a_worker_stopped_before_the_first_step_is_named(
  data_dir, tmp_path, sync
):
  words = arguments(data_dir, tmp_path, 100, sync=sync, step_timeout=25)
  with clusters.Cluster(1, 2, words) as cluster:
    cluster.start_all()
    # The chief's functions are not traced yet: TensorFlow holds Python's lock
    # while it sends them to all tasks.
    cluster.tasks['worker', 1].read_until('reads batches from')
    cluster.tasks['worker', 1].send(signal.SIGSTOP)
    finished = cluster.chief.wait()
  assert finished.code == watchdog.LOST
  assert 'received no answer from worker 1 (localhost' in finished.err
  assert 'step 1,' not in finished.out
