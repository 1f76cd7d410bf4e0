import pytest
import tensorflow as tf


@pytest.fixture
def logdir(tmp_path):
  with tf.summary.create_file_writer(str(tmp_path / 'log')).as_default():
    tf.summary.scalar('loss', 1.0, step=1)
  return tmp_path / 'log'


def run(worker, *arguments):
  return worker.run('serialize_tensorboard', arguments)


def test_writes_a_run_and_replaces_it_only_with_overwrite(
  worker, logdir, tmp_path
):
  words = ['--logdir', logdir, '--target', tmp_path / 'out']
  first = run(worker, *words, '--purge_orphaned_data', 'False')
  assert (first.code, first.out) == (
    0,
    f'Wrote 3 files of 1 runs into {tmp_path}/out.\n',
  )
  second = run(worker, *words)
  assert second.code == 2
  assert 'target: expected a folder that does not exist' in second.error
  third = run(worker, *words, '--overwrite', 'True')
  assert third.code == 0, third.err
  assert sorted(p.name for p in tmp_path.iterdir()) == ['log', 'out']


def test_a_target_that_cannot_be_written_is_explained(worker, logdir, tmp_path):
  (tmp_path / 'file').touch()
  target = tmp_path / 'file' / 'out'
  done = run(worker, '--logdir', logdir, '--target', target)
  assert done.code not in (0, None)
  assert 'target: expected to write ' in done.error


def test_overwrite_does_not_remove_a_strangers_folder(worker, logdir, tmp_path):
  (tmp_path / 'precious').mkdir()
  done = run(
    worker,
    *('--logdir', logdir, '--target', tmp_path / 'precious', '--overwrite'),
  )
  assert done.code == 2
  assert 'which has no runs.json' in done.error
  assert (tmp_path / 'precious').is_dir()


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (['--target=/t/t'], 'logdir: expected a folder'),
    (['--logdir=/l'], 'target: expected a folder'),
    (['--logdir=/none', '--target=/none/t'], 'folder with event files'),
  ],
)
def test_what_cannot_be_written_is_refused(worker, words, message):
  done = run(worker, *words)
  assert done.code == 2
  assert message in done.error
