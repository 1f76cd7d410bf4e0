import pandas as pd
import pytest

from terngrad.training import records
from tests.bin import programs


def fill(folder, accuracy):
  for name in ('train', 'eval'):
    (folder / name).mkdir(parents=True)
  recorder = records.Recorder(folder / 'train')
  for step in (10, 20):
    recorder.scalars(
      step,
      {
        'total_loss': 1.0 / step,
        'entropy_loss_smoothed': 1.0 / step,
        'seconds': 2.0 * step,
        'bits_per_element': 1.6,
      },
    )
  recorder.close()
  if accuracy is not None:
    recorder = records.Recorder(folder / 'eval')
    recorder.scalars(20, {'precision_at_1': accuracy})
    recorder.close()


def test_table_and_plot_show_every_run(worker, tmp_path):
  fill(tmp_path / 'a', 0.9871)
  fill(tmp_path / 'b', None)
  done = worker.run(
    'compare_runs',
    programs.as_flags(
      runs=f'float32={tmp_path / "a"},ternary={tmp_path / "b"}',
      output=tmp_path / 'out',
    ),
  )
  assert done.code == 0, done.err
  for word in ('float32', 'ternary', '98.71%', 'not evaluated', '40.0', '1.6'):
    assert word in done.out
  table = pd.read_csv(tmp_path / 'out' / 'comparison.csv')
  assert list(table['steps']) == [20, 20]
  plot = tmp_path / 'out' / 'comparison.png'
  assert plot.read_bytes().startswith(b'\x89PNG')
  assert str(plot) in done.out


@pytest.mark.parametrize(
  ('runs', 'message'),
  [
    ('', '--runs: expected a value'),
    ('nonsense', 'expected NAME=FOLDER'),
    ('a=/none', 'runs: expected the --train_dir of a run, or the folder'),
  ],
)
def test_what_cannot_be_compared_is_refused(runs, message, worker, tmp_path):
  done = worker.run(
    'compare_runs', programs.as_flags(runs=runs, output=tmp_path / 'out')
  )
  assert done.code == 2
  assert message in done.error
  assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('given', ['a', 'a/train'])
def test_a_run_is_named_by_its_train_dir_or_the_folder_above(
  worker, tmp_path, given
):
  fill(tmp_path / 'a', 0.9871)
  done = worker.run(
    'compare_runs',
    programs.as_flags(runs=f'ours={tmp_path / given}', output=tmp_path / 'out'),
  )
  assert done.code == 0, done.err
  assert '98.71%' in done.out and '40.0' in done.out


def test_an_evaluation_in_the_train_dir_is_found(worker, tmp_path):
  fill(tmp_path / 'a', 0.9871)
  (tmp_path / 'a' / 'train').rename(tmp_path / 'run')
  (tmp_path / 'a' / 'eval').rename(tmp_path / 'run' / 'eval')
  done = worker.run(
    'compare_runs',
    programs.as_flags(runs=f'a={tmp_path / "run"}', output=tmp_path / 'out'),
  )
  assert done.code == 0, done.err
  assert '98.71%' in done.out
