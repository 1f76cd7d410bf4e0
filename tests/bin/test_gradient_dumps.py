"""dump_gradients and measure_variance."""

import numpy as np
import pandas as pd
import pytest


def dump(worker, data_dir, path, nodes, *more):
  return worker.run(
    'dump_gradients',
    [
      f'--output={path}',
      '--dataset_name=mnist',
      '--net=lenet',
      '--image_size=28',
      '--batch_size=8',
      f'--num_nodes={nodes}',
      f'--data_dir={data_dir}',
      *more,
    ],
  )


@pytest.mark.slow
def test_gradients_of_the_workers_average_to_that_of_the_whole_batch(
  worker, data_dir, tmp_path
):
  for nodes in (1, 4):
    finished = dump(worker, data_dir, tmp_path / f'{nodes}.npz', nodes)
    assert finished.code == 0, finished.err
    assert f'gradients of {nodes} workers in step 1' in finished.out
  assert sorted(p.name for p in tmp_path.iterdir()) == ['1.npz', '4.npz']
  with (
    np.load(tmp_path / '1.npz') as whole,
    np.load(tmp_path / '4.npz') as each,
  ):
    assert whole.files == each.files
    assert whole['conv1/kernel'].shape == (1, 5, 5, 1, 20)
    assert each['logits/bias'].shape == (4, 10)
    for name in whole.files:
      np.testing.assert_allclose(
        each[name].mean(axis=0), whole[name][0], rtol=1e-3, atol=1e-5
      )


def test_codes_whose_steps_send_differences_are_refused(
  worker, data_dir, tmp_path
):
  words = ['--codec=ef21+topk']
  finished = dump(worker, data_dir, tmp_path / 'g.npz', 2, *words)
  assert finished.code == 2
  assert 'codec: expected a code whose float32 steps send grad' in finished.err


def test_codes_with_other_float32_steps_are_dumped_as_gradients(
  worker, data_dir, tmp_path
):
  for codec in ('identity', 'demo'):
    path = tmp_path / f'{codec}.npz'
    finished = dump(worker, data_dir, path, 2, f'--codec={codec}')
    assert finished.code == 0, finished.err
  with (
    np.load(tmp_path / 'identity.npz') as plain,
    np.load(tmp_path / 'demo.npz') as found,
  ):
    for name in plain.files:
      np.testing.assert_allclose(found[name], plain[name], atol=1e-6)


def test_output_needs_the_name_of_a_dump(worker, data_dir, tmp_path):
  finished = dump(worker, data_dir, tmp_path / 'gradients', 1)
  assert finished.code == 2
  assert 'output: expected a file name that ends in .npz' in finished.err


def test_an_output_that_cannot_be_written_is_refused_before_the_step(
  worker, data_dir, tmp_path
):
  (tmp_path / 'file').touch()
  finished = dump(worker, data_dir, tmp_path / 'file' / 'g.npz', 1)
  assert finished.code not in (0, None)
  assert f'output: expected to write {tmp_path}/file' in finished.error


@pytest.mark.parametrize('given', ['none', 'empty', 'file'])
def test_a_folder_without_a_run_is_refused(worker, data_dir, tmp_path, given):
  (tmp_path / 'empty' / 'train').mkdir(parents=True)
  (tmp_path / 'file').touch()
  finished = dump(
    worker, data_dir, tmp_path / 'g.npz', 1, f'--train_dir={tmp_path / given}'
  )
  assert finished.code == 2
  assert 'train_dir: expected the --train_dir of a run' in finished.error
  assert str(tmp_path / given) in finished.error
  assert not (tmp_path / 'g.npz').exists()


@pytest.mark.slow
def test_a_run_is_named_by_its_train_dir_or_the_folder_above(
  worker, one_tower, data_dir, tmp_path
):
  (tmp_path / 'train').symlink_to(one_tower)
  dumps = []
  for folder in (one_tower, tmp_path):
    path = tmp_path / f'{len(dumps)}.npz'
    finished = dump(
      worker,
      data_dir,
      path,
      4,
      *('--num_gpus=2', '--batch_size=4', f'--train_dir={folder}'),
    )
    assert finished.code == 0, finished.err
    assert 'gradients of 4 workers in step 3' in finished.out
    with np.load(path) as arrays:
      dumps.append({name: arrays[name] for name in arrays})
  np.testing.assert_equal(*dumps)


@pytest.mark.slow
def test_a_run_without_a_checkpoint_is_refused(worker, data_dir, tmp_path):
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'metrics.jsonl').touch()
  finished = dump(
    worker, data_dir, tmp_path / 'g.npz', 1, f'--train_dir={tmp_path / "run"}'
  )
  assert finished.code == 2
  assert 'train_dir: expected a run with a checkpoint' in finished.error


def test_errors_and_gains_are_printed(worker, tmp_path):
  values = np.random.default_rng(0).normal(size=(8, 20_000))
  np.savez(tmp_path / 'g.npz', v=np.float32(values))
  finished = worker.run(
    'measure_variance',
    [
      f'--gradients=g={tmp_path / "g.npz"}',
      '--codecs=ternary',
      '--codecs=ternary:dither=stratified',
      '--codecs=identity',
      '--draws=2',
      f'--output={tmp_path / "out"}',
    ],
  )
  assert finished.code == 0, finished.err
  table = pd.read_csv(tmp_path / 'out' / 'measure_variance.csv')
  ternary, stratified, identity = (row for _, row in table.iterrows())
  # Theory's for Gaussian gradients at c = 2.5.
  np.testing.assert_allclose(ternary['one'], 1.01, rtol=0.05)
  np.testing.assert_allclose(ternary['mean'], 1.01 / 8, rtol=0.05)
  np.testing.assert_allclose(stratified['one'], 1.01, rtol=0.05)
  assert stratified['gain'] > 1.5
  assert identity['bits'] > 32
  assert identity['mean'] < 1e-10
  assert (tmp_path / 'out' / 'measure_variance.png').stat().st_size > 10_000


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    ([], '--gradients: expected a value'),
    (['--gradients=g'], '--gradients: expected NAME=FILE'),
    (['--gradients=g=/none.npz'], 'a file of `terngrad report gradients`'),
    (['--gradients=g=/none.npz', '--draws=0'], 'draws: expected a number >= 1'),
  ],
)
def test_what_cannot_be_measured_is_refused(worker, words, message):
  finished = worker.run('measure_variance', words)
  assert finished.code == 2
  assert message in finished.error
