"""--num_epochs and --eval_subsets: what a run says at the end of an epoch."""

import re
import shutil

import pytest

from tests.bin import clusters
from tests.bin import conftest
from tests.bin import programs

NAMES = [
  f'{subset}_{name}'
  for subset in ('test', 'train')
  for name in ('precision_at_1', 'recall_at_5')
]
# 90 examples, 16 a step: epochs end in steps 6, 12 and 17.
ENDS = {1: 6, 2: 12, 3: 17}
OPTIONS = (
  '--num_epochs=3',
  '--batch_size=16',
  '--num_nodes=2',
  '--grad_bits=1',
  '--clip_factor=2.5',
  '--eval_subsets=test,train,test',
  '--keep_best=accuracy',
)


def arguments(data_dir, train_dir, *more):
  return [f'--data_dir={data_dir}', f'--train_dir={train_dir}', *OPTIONS, *more]


def scores(train_dir):
  return [r for r in programs.metrics(train_dir) if 'epoch' in r]


@pytest.fixture(scope='module')
def trained(worker, data_dir, tmp_path_factory):
  """(folder, what was printed) of a run of three epochs."""
  folder = tmp_path_factory.mktemp('epochs') / 'train'
  finished = worker.run('mnist_train', arguments(data_dir, folder))
  assert finished.code == 0, finished.err
  return folder, finished.out


def test_a_run_of_epochs_ends_with_the_last_and_scores_each(trained):
  folder, printed = trained
  found = scores(folder)
  assert {r['epoch']: r['step'] for r in found} == ENDS
  assert all(set(NAMES) < set(r) for r in found)
  assert programs.checkpoint_steps(folder)[-1] == ENDS[3]
  lines = re.findall(
    r': epoch (\d) ended in step (\d+), loss = (\d\.\d{4}), '
    r'accuracy = (0\.\d{4}), test_precision_at_1 = (0\.\d{4}), '
    r'.*train_precision_at_1 = (0\.\d{4}), ',
    printed,
  )
  means = {r['step']: r for r in programs.metrics(folder) if 'accuracy' in r}
  assert lines == [
    (
      str(r['epoch']),
      str(r['step']),
      f'{means[r["step"]]["epoch_loss"]:.4f}',
      f'{means[r["step"]]["accuracy"]:.4f}',
      f'{r["test_precision_at_1"]:.4f}',
      f'{r["train_precision_at_1"]:.4f}',
    )
    for r in found
  ]


def best_steps(train_dir):
  """The steps of the checkpoints in the folder of the best one."""
  return programs.checkpoint_steps(train_dir / 'best')


def test_the_best_checkpoint_is_kept(trained):
  folder, printed = trained
  values = [r['test_precision_at_1'] for r in scores(folder)]
  best = ENDS[1 + values.index(max(values))]
  assert best_steps(folder) == [best]
  assert f'best epoch so far: {folder}/best/model.ckpt-{best}' in printed
  name = f'model.ckpt-{best}'
  assert programs.tensors(folder / 'best' / name) == programs.tensors(
    folder / name
  )


def test_what_was_killed_before_the_best_was_kept_keeps_it(
  worker, data_dir, tmp_path, trained
):
  folder = tmp_path / 'train'
  shutil.copytree(trained[0], folder)
  (step,) = best_steps(folder)
  shutil.rmtree(folder / 'best')
  words = arguments(data_dir, folder)
  finished = worker.run('mnist_train', words)
  assert finished.code == 0, finished.err
  assert best_steps(folder) == [step]
  # Its checkpoint may be gone.
  shutil.rmtree(folder / 'best')
  for path in folder.glob(f'model.ckpt-{step}.*'):
    path.unlink()
  finished = worker.run('mnist_train', words)
  assert 'checkpoint of the best epoch so far is gone' in finished.out


# With this learning rate the first epoch stays the best.
STUCK = (
  '--initial_learning_rate=0',
  '--keep_best=loss',
  '--early_stopping=2',
  '--num_epochs=9',
  '--epoch_size=40',
)


@pytest.mark.slow
def test_a_run_ends_when_no_epoch_is_better(worker, data_dir, tmp_path):
  words = arguments(data_dir, tmp_path / 'train', *STUCK)
  for _ in range(2):  # the same command changes nothing when it is over
    finished = worker.run('mnist_train', words)
    assert finished.code == 0, finished.err
    assert '2 epochs without a better test_loss: the run ends' in finished.out
    assert programs.checkpoint_steps(tmp_path / 'train')[-1] == 8
    assert len(scores(tmp_path / 'train')) == 3
    assert best_steps(tmp_path / 'train') == [3]
  # An evaluator that waits for checkpoints ends with the run.
  words = [
    f'--data_dir={data_dir}',
    f'--checkpoint_dir={tmp_path / "train"}',
    f'--eval_dir={tmp_path / "eval"}',
    '--subset=test',
  ]
  finished = worker.run('mnist_eval', words)
  assert finished.code == 0, finished.err
  words = arguments(data_dir, tmp_path / 'train', '--overwrite', '--keep_best=')
  assert worker.run('mnist_train', words).code == 0
  assert not (tmp_path / 'train' / 'best').exists()


@pytest.mark.parametrize(
  ('subset', 'count'),
  [
    ('test', conftest.TEST_EXAMPLES),
    pytest.param('train', conftest.TRAIN_EXAMPLES, marks=pytest.mark.slow),
  ],
)
def test_scores_are_those_of_the_evaluator(
  worker, data_dir, tmp_path, trained, subset, count
):
  """It reads the checkpoint of the last step, without averages."""
  folder, _ = trained
  last = scores(folder)[-1]
  finished = worker.run(
    'mnist_eval',
    [
      f'--data_dir={data_dir}',
      f'--checkpoint_dir={folder}',
      f'--eval_dir={tmp_path}',
      f'--subset={subset}',
      f'--num_examples={count}',
      '--restore_avg_var=false',
      '--run_once',
    ],
  )
  assert finished.code == 0, finished.err
  values = programs.metrics(tmp_path)[-1]
  assert values['num_examples'] == count
  for name in ('precision_at_1', 'recall_at_5'):
    assert values[name] == last[f'{subset}_{name}']


def test_scoring_changes_no_bit_and_a_run_continues(
  worker, data_dir, tmp_path, trained
):
  """In the middle of an epoch, which then ends as it would have."""
  first = arguments(data_dir, tmp_path / 'train', '--num_epochs=0')
  halfway = [*first, '--max_steps=9', '--eval_subsets=', '--keep_best=']
  assert worker.run('mnist_train', halfway).code == 0
  assert scores(tmp_path / 'train') == []
  rest = arguments(data_dir, tmp_path / 'train')
  finished = worker.run('mnist_train', rest)
  assert finished.code == 0, finished.err
  keep = NAMES + ['epoch', 'step']
  received, expected = (
    [{name: r[name] for name in keep} for r in scores(path)]
    for path in (tmp_path / 'train', trained[0])
  )
  assert received == expected[1:]
  # Its loss and accuracy are those of the whole epoch.
  for name in ('epoch_loss', 'accuracy'):
    ends = {
      r[name]
      for path in (tmp_path / 'train', trained[0])
      for r in programs.metrics(path)
      if r['step'] == ENDS[2] and name in r
    }
    assert len(ends) == 1
  last = f'model.ckpt-{ENDS[3]}'
  assert programs.tensors(tmp_path / 'train' / last) == programs.tensors(
    trained[0] / last
  )


def test_epochs_of_another_size_are_scored_at_their_ends(
  worker, data_dir, tmp_path
):
  sized = ['--epoch_size=40', '--num_epochs=2', '--eval_subsets=test']
  finished = worker.run(
    'mnist_train', arguments(data_dir, tmp_path / 'train', *sized)
  )
  assert finished.code == 0, finished.err
  assert [(r['epoch'], r['step']) for r in scores(tmp_path / 'train')] == [
    (1, 3),
    (2, 5),
  ]


def test_the_page_of_a_run_shows_the_scores(worker, tmp_path, trained):
  folder, _ = trained
  page = tmp_path / 'run.html'
  finished = worker.run(
    'run_page', [f'--train_dir={folder}', f'--output={page}']
  )
  assert finished.code == 0, finished.err
  text = page.read_text(encoding='utf-8')
  last = scores(folder)[-1]['test_precision_at_1']
  assert f'<th>top-1 accuracy, test</th><td>{last:.2%}</td>' in text
  for subset in ('test', 'train'):
    assert f'top-1, {subset}, after each epoch' in text


@pytest.mark.parametrize(
  ('more', 'said'),
  [
    (['--eval_subsets=tset'], "did you mean 'test'"),
    (['--num_epochs=-1'], 'num_epochs: expected'),
    (['--keep_best=speed'], 'keep_best: expected one of'),
    (['--eval_subsets='], 'keep_best: expected a subset to score'),
    (
      ['--keep_best=', '--early_stopping=1'],
      'early_stopping: expected --keep_best',
    ),
    (['--benchmark_mode'], 'eval_subsets: expected none beside'),
  ],
)
def test_what_cannot_be_scored_is_refused(
  worker, data_dir, tmp_path, more, said
):
  words = arguments(data_dir, tmp_path / 'train', *more)
  finished = worker.run('mnist_train', words)
  assert finished.code == 2
  assert said in finished.err
  assert not (tmp_path / 'train').exists()


def test_damage_in_what_is_scored_is_named(worker, data_dir, tmp_path):
  shutil.copytree(data_dir, tmp_path / 'data')
  (path,) = (tmp_path / 'data').glob('test-*')
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  words = arguments(tmp_path / 'data', tmp_path / 'train')
  finished = worker.run('mnist_train', words)
  assert finished.code == 1
  assert f'{path.name}: ' in finished.err
  # What was trained before is there.
  assert programs.metrics(tmp_path / 'train')[-1]['step'] == ENDS[1]


@pytest.mark.cluster
@pytest.mark.slow
def test_processes_score_their_shares_and_say_the_same(
  data_dir, tmp_path, trained
):
  words = arguments(data_dir, tmp_path / 'train', '--exchange=collective')
  clusters.complete(0, 2, words, program='mnist_train')
  keep = NAMES + ['epoch', 'step']
  received, expected = (
    [{name: r[name] for name in keep} for r in scores(path)]
    for path in (tmp_path / 'train', trained[0])
  )
  assert received == expected
  assert best_steps(tmp_path / 'train') == best_steps(trained[0])


@pytest.mark.cluster
@pytest.mark.slow
def test_processes_end_after_the_same_epoch(data_dir, tmp_path):
  """Only the first process has the scores of earlier epochs."""
  folder = tmp_path / 'train'
  words = arguments(data_dir, folder, '--exchange=collective', *STUCK)
  for _ in range(2):
    clusters.complete(0, 2, words, program='mnist_train')
    assert programs.checkpoint_steps(folder)[-1] == 8
    assert best_steps(folder) == [3]
