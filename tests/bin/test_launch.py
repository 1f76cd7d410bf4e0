"""Runs that `terngrad launch` starts: real processes, bits and signals."""

import signal

import pytest

from tests.bin import programs

pytestmark = pytest.mark.cluster


def launched(*words, **flags):
  return programs.Program(
    'terngrad.cli.main', ['launch', *words, *programs.as_flags(**flags)]
  )


def command(data_dir, train_dir, **changes):
  return [
    '--',
    'train',
    'mnist',
    *programs.short_run_arguments(data_dir, train_dir, num_gpus=1, **changes),
  ]


def test_two_launched_workers_end_at_the_bits_of_two_towers(
  data_dir, tmp_path, worker
):
  with launched('--num_workers=2', *command(data_dir, tmp_path / 'two')) as run:
    finished = run.wait()
  assert finished.code == 0, finished
  assert '[worker 0] ' in finished.out
  towers = programs.short_run_arguments(data_dir, tmp_path / 'towers')
  assert worker.run('mnist_train', towers).code == 0
  received, expected = (
    programs.tensors(tmp_path / name / 'model.ckpt-4')
    for name in ('two', 'towers')
  )
  mine = {name for name in expected if name.startswith('tower_0/')}
  assert mine and all(received[name] == expected[name] for name in mine)


def test_launched_servers_train_to_the_end(data_dir, tmp_path):
  words = command(data_dir, tmp_path / 'train')
  with launched('--num_workers=2', '--num_ps=1', *words) as run:
    finished = run.wait()
  assert finished.code == 0, finished
  assert '[ps 0] ' in finished.out
  assert (tmp_path / 'train' / 'model.ckpt-4.index').exists()


def test_a_signal_reaches_all_and_leaves_a_checkpoint(data_dir, tmp_path):
  words = command(data_dir, tmp_path / 'train', max_steps=100_000)
  with launched('--num_workers=2', *words) as run:
    run.read_until(r'\[worker 0\] .* step 10,')
    run.send(signal.SIGTERM)
    finished = run.wait()
  assert finished.code == 128 + signal.SIGTERM, finished
  assert 'stopped by signal 15' in finished.out
  assert list((tmp_path / 'train').glob('model.ckpt-*.index'))
