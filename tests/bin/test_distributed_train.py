import re
import signal

import numpy as np
import pytest

from slim.nets import factory
from terngrad.cluster import watchdog
from tests.bin import clusters
from tests.bin import normalized_train
from tests.bin import programs

pytestmark = pytest.mark.cluster


def assert_equal_bits(one, other, step=clusters.STEPS):
  expected = clusters.state(one, step)
  received = clusters.state(other, step)
  assert len(expected) >= 20
  assert expected.keys() == received.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(
      value.view(np.uint32), received[name].view(np.uint32), name
    )


@pytest.mark.parametrize(
  ('num_ps', 'num_processes', 'nodes'), [(1, 2, 1), (2, 4, 1), (1, 2, 2)]
)
def test_servers_and_towers_end_at_the_same_bits(
  num_ps, num_processes, nodes, data_dir, tmp_path
):
  arguments = [
    *clusters.arguments(data_dir, tmp_path / 'servers'),
    f'--num_gpus={nodes}',
  ]
  with clusters.Cluster(num_ps, num_processes, arguments) as cluster:
    cluster.start_all()
    clusters.towers(data_dir, tmp_path / 'towers', num_processes, nodes=nodes)
    finished = cluster.wait()
  assert {f.code for f in finished.values()} == {0}, finished
  assert_equal_bits(tmp_path / 'towers', tmp_path / 'servers')
  lines = finished['worker', 0].out
  assert re.search(r'PS hosts are: .*localhost', lines)
  assert f'total_num_replicas={num_processes}' in lines
  assert re.search(r'global_step/sec: [\d.]+', lines)
  assert re.search(
    r'Worker 0: .*: step 30, loss = [\d.]+ \([\d.]+ examples/sec; [\d.]+ '
    r'sec/batch; ',
    lines,
  )
  assert re.search(
    r'Worker 1: .*: step 30, entropy_loss = [\d.]+ \([\d.]+ examples/sec; ',
    finished['worker', 1].out,
  )


@pytest.mark.slow
@pytest.mark.parametrize('part_bytes', [0, 2**20])
@pytest.mark.parametrize(
  'codec',
  [
    'error_feedback+topk:ratio=0.01',
    'error_feedback+powersgd:rank=2',
    'error_feedback+sign:decide=majority',
    'error_feedback+e3m0',
    'error_feedback+statistical',
    'error_feedback:decay=0.95+sparseloco',
    'ef21+topk:ratio=0.01',
    'ef21_sgdm+topk:ratio=0.01',
    'diana+qsgd',
    'demo:count=4',
    # Of a small variance the steps would diverge after so short a warm-up.
    'one_bit_adam:warm_up=5,epsilon=0.1+sign',
    'ternary:sharing=thin',
  ],
)
def test_servers_and_towers_agree_whatever_the_method(
  codec, part_bytes, data_dir, tmp_path
):
  steps = 10
  arguments = [
    *clusters.arguments(
      data_dir, tmp_path / 'servers', steps=steps, codec=codec
    ),
    *('--num_gpus=2', f'--bytes_per_bucket={part_bytes}'),
  ]
  with clusters.Cluster(1, 2, arguments) as cluster:
    cluster.start_all()
    clusters.towers(
      data_dir, tmp_path / 'towers', 2, nodes=2, steps=steps, codec=codec
    )
    finished = cluster.wait()
  assert {f.code for f in finished.values()} == {0}, finished
  assert_equal_bits(tmp_path / 'towers', tmp_path / 'servers', steps)
  expected, received = (
    clusters.state(tmp_path / run, steps, 'states/')
    for run in ('towers', 'servers')
  )
  assert expected.keys() == received.keys()
  assert bool(expected) == (not codec.startswith('ternary'))
  for name, value in expected.items():
    np.testing.assert_array_equal(
      value.view(np.uint32), received[name].view(np.uint32), name
    )


@pytest.mark.slow
@pytest.mark.parametrize(('num_ps', 'num_processes'), [(1, 2), (2, 4)])
def test_a_net_with_batch_norm_ends_at_the_bits_of_towers(
  num_ps, num_processes, data_dir, tmp_path, monkeypatch
):
  name = normalized_train.NAME
  arguments = [
    *clusters.arguments(data_dir, tmp_path / 'servers'),
    f'--net={name}',
  ]
  module = normalized_train.__name__
  monkeypatch.setitem(factory.NETS, name, normalized_train.NET)
  with clusters.Cluster(num_ps, num_processes, arguments, module) as cluster:
    cluster.start_all()
    clusters.towers(data_dir, tmp_path / 'towers', num_processes, net=name)
    finished = cluster.wait()
  assert {f.code for f in finished.values()} == {0}, finished
  assert_equal_bits(tmp_path / 'towers', tmp_path / 'servers')
  values = clusters.state(tmp_path / 'servers', clusters.STEPS)
  variances = [v for name, v in values.items() if 'moving_variance' in name]
  # They begin as ones.
  assert len(variances) >= 2
  assert all(np.any(variance != 1) for variance in variances)


@pytest.mark.slow
def test_eight_workers_train_in_at_most_two_gibibytes_each(data_dir, tmp_path):
  arguments = clusters.arguments(data_dir, tmp_path, steps=31)
  arguments.append('--start_timeout=580')
  # Nine processes that compile at once.
  with clusters.Cluster(1, 8, arguments, limit=600) as cluster:
    cluster.start_all()
    cluster.chief.read_until('step 30,')
    peaks = {
      f'{job}_{index}': process.peak_memory()
      for (job, index), process in cluster.tasks.items()
    }
    finished = cluster.wait()
  assert {f.code for f in finished.values()} == {0}, finished
  assert programs.checkpoint_steps(tmp_path) == [31]
  assert max(peaks.values()) <= 2048, peaks


def test_chief_worker_and_ps_may_be_killed_and_end_at_the_same_bits(
  data_dir, tmp_path
):
  steps = 150
  arguments = clusters.arguments(data_dir, tmp_path / 'servers', steps=steps)
  with clusters.Cluster(1, 2, [*arguments, '--save_iter=15']) as cluster:
    cluster.start_all()
    cluster.chief.read_until('step 30,')
    cluster.restart('worker', 1)
    cluster.chief.read_until(r'worker 1 .*; restarting')
    cluster.chief.read_until('step 60,')
    cluster.restart('ps', 0)
    cluster.chief.read_until(r'ps 0 .*; restarting')
    cluster.chief.read_until('step 90,')
    cluster.restart('worker', 0)
    cluster.chief.read_until('restored .*model.ckpt')
    clusters.towers(data_dir, tmp_path / 'towers', 2, steps=steps)
    finished = cluster.wait()
  assert {f.code for f in finished.values()} == {0}, finished
  assert_equal_bits(tmp_path / 'towers', tmp_path / 'servers', steps)


@pytest.mark.parametrize('to_all', [False, True])
def test_a_signal_ends_all_tasks_after_a_checkpoint(data_dir, tmp_path, to_all):
  arguments = clusters.arguments(data_dir, tmp_path, steps=100000)
  with clusters.Cluster(1, 2, arguments) as cluster:
    cluster.start_all()
    cluster.chief.read_until('step 30,')
    if to_all:
      others = cluster.tasks['ps', 0], cluster.tasks['worker', 1]
      for task in others:
        task.send(signal.SIGTERM)
      for task in others:
        task.read_until('serves until the chief ends the run')
    cluster.chief.send(signal.SIGTERM)
    finished = cluster.wait()
  stopped = 128 + signal.SIGTERM
  assert finished['worker', 0].code == stopped
  for task in (('worker', 1), ('ps', 0)):
    assert finished[task].code == (stopped if to_all else 0)
  assert list(tmp_path.glob('model.ckpt-*.index'))
  evaluation = tmp_path / 'eval'
  with programs.Program(
    'mnist_eval',
    [
      f'--data_dir={data_dir}',
      f'--checkpoint_dir={tmp_path}',
      f'--eval_dir={evaluation}',
      '--run_once',
    ],
  ) as program:
    assert 'precision @ 1' in program.wait().out


def test_a_stopped_worker_is_named_and_the_chief_ends(data_dir, tmp_path):
  arguments = clusters.arguments(data_dir, tmp_path, steps=100000)
  with clusters.Cluster(1, 2, [*arguments, '--step_timeout=40']) as cluster:
    cluster.start_all()
    cluster.chief.read_until('step 30,')
    cluster.tasks['worker', 1].send(signal.SIGSTOP)
    finished = cluster.chief.wait()
  assert finished.code == watchdog.LOST
  assert 'received no answer from worker 1 (localhost' in finished.err


def test_a_worker_that_never_comes_is_named(data_dir, tmp_path):
  arguments = [*clusters.arguments(data_dir, tmp_path), '--start_timeout=10']
  with clusters.Cluster(1, 2, arguments) as cluster:
    # Longer than a slow worker takes to start.
    cluster.start('ps', 0, '--start_timeout=600')
    cluster.tasks['ps', 0].read_until('serves')
    cluster.start('worker', 0)
    finished = cluster.wait()
  assert finished['worker', 0].code == 2
  assert 'received no answer from worker 1 (localhost' in (
    finished['worker', 0].error
  )
  assert '--job_name=worker --task_id=1' in finished['worker', 0].error
  assert finished['ps', 0].code == 2
  assert not list(tmp_path.glob('model.ckpt*'))


def test_a_chief_that_cannot_begin_ends_the_tasks_that_wait(data_dir, tmp_path):
  arguments = clusters.arguments(data_dir, tmp_path)
  with clusters.Cluster(1, 1, arguments) as cluster:
    cluster.start('ps', 0)
    cluster.tasks['ps', 0].read_until('serves')
    cluster.start('worker', 0, '--train_dir=')
    finished = cluster.wait()
  assert {one.code for one in finished.values()} == {2}
  assert 'train_dir: expected a folder' in finished['worker', 0].error
  assert 'the chief ended the run: train_dir' in finished['ps', 0].error


def test_a_worker_of_another_code_is_refused(data_dir, tmp_path):
  arguments = clusters.arguments(data_dir, tmp_path)
  with clusters.Cluster(1, 2, arguments) as cluster:
    cluster.start('ps', 0)
    cluster.start('worker', 1, '--packing=two_bit')
    cluster.start('worker', 0)
    finished = cluster.wait()
  assert finished['worker', 0].code == 2
  assert 'expected codec to be' in finished['worker', 0].error
  assert 'two_bit' in finished['worker', 0].error
  assert 'worker 1 (localhost' in finished['worker', 0].error
  assert finished['worker', 1].code == finished['ps', 0].code == 2


def test_the_chief_reports_the_damaged_data_of_a_worker(data_dir, tmp_path):
  damaged = tmp_path / 'damaged'
  damaged.mkdir()
  (damaged / 'labels.txt').write_bytes((data_dir / 'labels.txt').read_bytes())
  whole = (data_dir / 'train-mnist.tfrecord').read_bytes()
  cut = bytearray(whole)
  cut[len(whole) - len(whole) // 8] ^= 0xFF
  (damaged / 'train-mnist.tfrecord').write_bytes(cut)
  arguments = clusters.arguments(data_dir, tmp_path / 'train', steps=10000)
  with clusters.Cluster(1, 2, arguments) as cluster:
    cluster.start('ps', 0)
    cluster.start('worker', 1, f'--data_dir={damaged}')
    cluster.start('worker', 0)
    finished = cluster.wait()
  assert finished['worker', 0].code == 1
  assert 'worker 1 (localhost' in finished['worker', 0].err
  assert str(damaged) in finished['worker', 0].err


@pytest.mark.parametrize('same_folder', [True, False])
def test_a_second_chief_is_refused_and_ends_nobody(
  data_dir, tmp_path, same_folder
):
  first, second = tmp_path / 'first', tmp_path / 'second'
  arguments = clusters.arguments(data_dir, first, steps=100_000)
  with clusters.Cluster(1, 1, arguments) as cluster:
    cluster.start('ps', 0)
    chief = cluster.start('worker', 0)
    chief.read_until('step 30,')
    late = cluster.start(
      'worker', 0, f'--train_dir={first if same_folder else second}'
    ).wait()
    assert late.code == 2
    assert 'expected to listen on its port' in late.error
    # The first is well, and so is its server.
    chief.read_until('step [0-9]+,')
    chief.send(signal.SIGTERM)
    assert chief.wait().code == 128 + signal.SIGTERM
    assert cluster.tasks['ps', 0].wait().code == 0
  assert not second.exists()
