"""`terngrad sweep`: what is missing is run, and equal runs report alike."""

import contextlib
import csv
import io
import json
import os
import re
import signal

import pandas as pd
import pytest

from terngrad.cli import sweep as sweep_command
from tests.bin import programs

TEXT = """\
[sweep]
seeds = 2
baseline = float32

[flags]
--batch_size = 8
--max_steps = 4
--save_iter = 4
--num_nodes = 2
--eval_subsets = test
# Two steps of 8.
--epoch_size = 16

[eval]
--batch_size = 9

[eval few]
--num_examples = 9

[codec]
float32 = --codec=identity
ternary = --codec=ternary
"""
NAMES = [f'{v}_seed2' for v in ('float32', 'ternary')]


@pytest.fixture(scope='module')
def swept(data_dir, tmp_path_factory):
  """(folder of the definition, folder of the runs, what was printed)."""
  folder, work = (tmp_path_factory.mktemp(name) for name in ('small', 'work'))
  (folder / 'sweep.ini').write_text(TEXT, encoding='utf-8')
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    code = act(folder, data_dir, work, jobs=2)
  return folder, work, programs.Finished(code, out.getvalue(), err.getvalue())


def act(folder, data_dir, work, **more):
  """`sweep` in this process, which has one with TensorFlow for its runs."""
  folders = {'definition': folder, 'data_dir': data_dir, 'work_dir': work}
  texts = {name: str(path) for name, path in folders.items()}
  return sweep_command.act(sweep_command.SweepFlags(**texts, **more))


def arguments(folder, data_dir, work, *more):
  return [
    'sweep',
    folder,
    f'--data_dir={data_dir}',
    f'--work_dir={work}',
    *more,
  ]


def sweep(*words):
  return programs.run('terngrad.cli.main', *arguments(*words))


@pytest.fixture
def report(worker):
  """`sweep` in the process of all programs, for what starts no run."""

  def run(*words):
    return worker.run('terngrad.cli.main', arguments(*words))

  return run


def lines_of(path):
  return path.read_text().splitlines() if path.exists() else []


def rows(folder):
  with open(folder / 'results.csv', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def test_every_run_is_a_row_that_says_how_it_was_made(swept):
  folder, _, done = swept
  assert (done.code, done.err) == (0, '')
  found = rows(folder)
  assert [f'{r["variant"]}_seed{r["seed"]}' for r in found] == NAMES
  for row in found:
    assert row['steps'] == '4'
    # Of 37 examples some are right, and of 9 another share.
    assert 0 < float(row['accuracy']) != float(row['accuracy_few']) <= 1
    assert row['flags'].endswith(f'--seed={row["seed"]}')
    assert 'tensorflow ' in row['versions'] and 'cores' in row['machine']
    assert row['commit']
  assert {float(r['bits_per_element']) > 30 for r in found} == {True, False}
  assert len(re.findall(r'_seed\d: [\d.]+ %', done.out)) == len(NAMES)


def test_a_curve_has_every_epoch_that_training_scored(swept):
  folder, work, _ = swept
  curves = pd.read_csv(folder / 'curves.csv')
  for variant, curve in curves.groupby('variant'):
    lines = lines_of(work / f'{variant}_seed2/train/metrics.jsonl')
    scored = [r for r in map(json.loads, lines) if 'test_precision_at_1' in r]
    assert list(curve['step']) == [r['step'] for r in scored] == [2, 4]
    assert list(curve['accuracy']) == [r['test_precision_at_1'] for r in scored]
  assert len(curves) == 2 * len(NAMES)


def test_table_plot_and_page_are_written_next_to_the_results(swept):
  folder, _, done = swept
  summary = pd.read_csv(folder / 'sweep.csv')
  assert set(summary['variant']) == {'float32', 'ternary'}
  assert 'to float32' in summary and 'few %' in summary
  for name in ('sweep.md', 'sweep.png', 'sweep.html'):
    assert (folder / name).stat().st_size
  assert done.out.splitlines()[-1] == f'page: {folder}/sweep.html'


def test_finished_runs_are_not_run_again_and_reported_alike(
  swept, report, data_dir
):
  folder, work, _ = swept
  files = ('results.csv', 'curves.csv', 'sweep.csv', 'sweep.md', 'sweep.html')
  before = [(folder / name).read_bytes() for name in files]
  logs = {p: p.stat().st_mtime_ns for p in work.glob('*/log.txt')}
  assert len(logs) == len(NAMES)
  done = report(folder, data_dir, work)
  assert done.code == 0, done.err
  assert [(folder / name).read_bytes() for name in files] == before
  assert {p: p.stat().st_mtime_ns for p in work.glob('*/log.txt')} == logs


def test_the_table_alone_says_what_is_finished(
  swept, report, data_dir, tmp_path
):
  folder, _, _ = swept
  curves = (folder / 'curves.csv').read_bytes()
  done = report(folder, data_dir, tmp_path, '--report')
  assert done.code == 0, done.err
  assert (folder / 'curves.csv').read_bytes() == curves
  assert not list(tmp_path.glob('*_seed*'))


@pytest.mark.parametrize('name', ['results.csv', 'curves.csv'])
def test_a_table_without_its_columns_is_one_line(
  report, data_dir, tmp_path, name
):
  (tmp_path / 'sweep.ini').write_text(TEXT, encoding='utf-8')
  (tmp_path / name).write_text('variant,other\nfloat32,1\n')
  done = report(tmp_path, data_dir, tmp_path, '--report')
  assert done.code
  assert f'{name}: expected a table of runs, received "no column ' in done.err
  assert 'Traceback' not in done.err


def test_a_row_that_is_taken_away_takes_its_curve_along(
  swept, report, data_dir, tmp_path
):
  folder, _, _ = swept
  for name in ('sweep.ini', 'results.csv', 'curves.csv'):
    lines = lines_of(folder / name)
    kept = lines if name != 'results.csv' else lines[:2]
    (tmp_path / name).write_text('\n'.join([*kept, '']))
  done = report(tmp_path, data_dir, tmp_path / 'none', '--report')
  assert done.code == 0, done.err
  curves = pd.read_csv(tmp_path / 'curves.csv')
  assert set(curves['variant']) == {'float32'}


@pytest.mark.slow
def test_a_run_again_gives_the_same_row(swept, data_dir, tmp_path):
  folder, _, _ = swept
  done = sweep(
    *(folder, data_dir, tmp_path / 'work', f'--output={tmp_path}'),
    *('--only=tern*', '--seeds=2'),
  )
  # The process that imports TensorFlow for the runs hides its messages.
  assert (done.code, done.err) == (0, '')
  (again,) = rows(tmp_path)
  (before,) = (
    r for r in rows(folder) if (r['variant'], r['seed']) == ('ternary', '2')
  )
  for name in ('accuracy', 'loss', 'bits_per_element', 'flags', 'steps'):
    assert again[name] == before[name]


def test_other_flags_are_another_sweep(swept, report, data_dir):
  folder, work, _ = swept
  done = report(folder, data_dir, work, f'--output={folder}', '--steps=3')
  assert done.code == 2
  assert 'float32_seed2 to have run with' in done.error
  assert '--max_steps=3' in done.error


@pytest.mark.slow
def test_steps_and_flags_of_the_command_line_go_beside_the_runs(
  swept, data_dir, tmp_path
):
  folder, _, _ = swept
  before = (folder / 'results.csv').read_bytes()
  done = sweep(
    *(folder, data_dir, tmp_path, '--steps=2', '--seeds=3', '--only=float32'),
    *('--', '--batch_size=4'),
  )
  assert done.code == 0, done.err
  (row,) = rows(tmp_path)
  assert row['steps'] == '2' and '--batch_size=4' in row['flags']
  assert (folder / 'results.csv').read_bytes() == before


@pytest.mark.slow
def test_a_run_that_fails_leaves_the_others_and_says_where(
  swept, data_dir, tmp_path
):
  folder, work, _ = swept
  # A net that this data set cannot feed is refused when it is built. It is the
  # last run.
  text = TEXT + 'large = --net=alexnet --image_size=28\n'
  (tmp_path / 'sweep.ini').write_text(text, encoding='utf-8')
  done = sweep(tmp_path, data_dir, tmp_path / 'work', '--seeds=1')
  assert done.code == 2
  assert 'failed: large_seed1' in done.err
  assert 'error: large_seed1 was refused before' in done.err
  assert (
    f'large_seed1: failed with exit code 2; see {tmp_path}/work/' in done.out
  )
  log = (tmp_path / 'work' / 'large_seed1' / 'log.txt').read_text()
  assert 'error: ' in log
  variants = [row['variant'] for row in rows(tmp_path / 'work')]
  assert variants == ['float32', 'ternary']
  (failure,) = pd.read_csv(tmp_path / 'work/failures.csv').to_dict('records')
  assert [failure[n] for n in ('variant', 'seed', 'code')] == ['large', 1, 2]
  assert f'error: {failure["error"]}' in log
  assert failure['flags'].endswith('--seed=1') and failure['versions']
  assert list(pd.read_csv(tmp_path / 'work/sweep.csv')['failed']) == [0, 0, 1]


def test_data_that_the_first_run_refuses_stop_the_sweep(tmp_path, capsys):
  (tmp_path / 'sweep.ini').write_text(TEXT, encoding='utf-8')
  (tmp_path / 'train-images-idx3-ubyte.gz').write_bytes(b'x')
  assert act(tmp_path, tmp_path, tmp_path / 'work') == 2
  failed, error = capsys.readouterr().err.splitlines()
  assert failed == 'failed: float32_seed2'
  assert error.startswith('error: float32_seed2 was refused before its first')
  assert error.endswith(f'--source_dir={tmp_path} --dataset_dir=D')
  assert [path.name for path in (tmp_path / 'work').iterdir()] == NAMES[:1]


@pytest.mark.slow
def test_runs_that_all_diverge_are_rows_of_failures_each_time(
  data_dir, tmp_path
):
  text = TEXT.replace('8\n', '8\n--initial_learning_rate = 1e30\n', 1)
  (tmp_path / 'sweep.ini').write_text(text, encoding='utf-8')
  for attempts in (1, 2):
    done = sweep(tmp_path, data_dir, tmp_path / 'work', '--only=float32')
    assert done.code == 1 and 'failed: float32_seed2' in done.err
    found = pd.read_csv(tmp_path / 'work/failures.csv')
    assert len(found) == attempts
    assert set(found['code']) == {1}
    assert found['error'].str.startswith('Step ').all()
  assert not (tmp_path / 'work/results.csv').exists()


def test_wrong_flags_stop_it_before_the_first_run(report, data_dir, tmp_path):
  text = TEXT + 'wrong = --codec=ternari\n'
  (tmp_path / 'sweep.ini').write_text(text, encoding='utf-8')
  done = report(tmp_path, data_dir, tmp_path / 'work')
  assert done.code == 2
  assert 'wrong: ' in done.error and 'ternari' in done.error
  assert not (tmp_path / 'work').exists()


@pytest.mark.slow
def test_a_sweep_that_is_stopped_goes_on(swept, data_dir, tmp_path):
  folder, _, _ = swept
  words = arguments(
    *(
      folder,
      data_dir,
      tmp_path,
      '--only=ternary',
      '--seeds=1',
      '--steps=4000',
    ),
  )
  with programs.Program('terngrad.cli.main', words) as program:
    train_dir = tmp_path / 'ternary_seed1' / 'train'
    while not lines_of(train_dir / 'metrics.jsonl'):
      os.sched_yield()
    program.send(signal.SIGTERM)
    done = program.wait()
  assert done.code == 128 + signal.SIGTERM
  assert 'the same command continues' in done.out
  (step,) = programs.checkpoint_steps(train_dir)
  assert 0 < step < 4000
  # It holds a checkpoint and no row.
  assert not (tmp_path / 'ternary_seed1' / 'result.json').exists()
  log = (tmp_path / 'ternary_seed1' / 'log.txt').read_text()
  assert json.dumps(step) in log
