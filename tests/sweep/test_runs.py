"""How a sweep ends and what it writes, with a program for the trainer."""

import json
import multiprocessing

import pandas as pd
import pytest

from terngrad import errors
from terngrad.report import sweep as report
from terngrad.sweep import definition
from terngrad.sweep import results
from terngrad.sweep import runs

TRAINED = {
  'step': 3,
  'total_loss': 1.0,
  'total_loss_smoothed': 1.0,
  'bits_per_element': 2.0,
  'seconds': 4.0,
  'test_precision_at_1': 0.5,
}
PROGRAM = (
  f'trained = {json.dumps(TRAINED)!r}'
  """
import pathlib, sys
flags = dict(word.partition('=')[::2] for word in sys.argv[1:])
def step():
  pathlib.Path(flags['--train_dir']).mkdir(exist_ok=True)
  pathlib.Path(flags['--train_dir'], 'metrics.jsonl').write_text(trained)
def end(code):
  print('error: here is the cause. ' + 300 * 'x' + ' And the remedy.')
  sys.exit(code)
if sys.argv[1] == 'eval':
  scored = pathlib.Path(flags['--eval_dir'])
  if 'ends' not in scored.parent.name:
    end(2)
  scored.mkdir()
  (scored / 'metrics.jsonl').write_text('{"step": 3, "precision_at_1": 0.5}')
  sys.exit(0)
do = flags['--do']
if do in ('steps', 'ends', 'stops, then ends'):
  step()
if do == 'stops, then ends':
  checkpoint = pathlib.Path(flags['--train_dir'], 'model.ckpt-3.index')
  do = 'ends' if checkpoint.exists() else 'fails'
  checkpoint.touch()
if do in ('evaluates', 'ends'):
  sys.exit(0)
end(1 if do == 'fails' else 2)
"""
)


@pytest.fixture
def opened(monkeypatch, tmp_path):
  """Opens a sweep with a variant for each name."""
  (tmp_path / 'trainer_like.py').write_text(PROGRAM)
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  monkeypatch.setattr(runs, '_MAIN', 'trainer_like')

  def open_sweep(*names, seed=1, flags=(), scoring=()):
    cells = [
      definition.Cell(name, seed, (f'--do={name}', *flags)) for name in names
    ]
    found = definition.Definition(tmp_path, 'mnist', {}, {'': scoring}, cells)
    return runs.Sweep(found, 'D', str(tmp_path / 'work'), tmp_path)

  return open_sweep


def run(sweep, jobs=1):
  stop_request, sender = multiprocessing.Pipe(duplex=False)
  with stop_request, sender:
    assert sweep.run(jobs, lambda line: None, stop_request)


@pytest.fixture
def sweep(opened):
  """Starts a sweep of a variant for each name; returns it at its end."""

  def run_names(*names, jobs=1):
    made = opened(*names)
    run(made, jobs)
    return made

  return run_names


def test_a_refused_run_ends_the_sweep_and_other_failures_do_not(
  sweep, tmp_path
):
  names = ('fails', 'steps', 'evaluates', 'refuses', 'never')
  done = sweep(*names)
  assert done.failed == [f'{name}_seed1' for name in names[:-1]]
  name, error = done.refused
  assert name == 'refuses_seed1'
  assert error.startswith('here is the cause.')
  assert error.endswith('And the remedy.')
  assert not (tmp_path / 'work' / 'never_seed1').exists()
  rows = pd.read_csv(tmp_path / 'failures.csv')
  assert rows['code'].tolist() == [1, 2, 2]


def test_a_continued_run_that_is_refused_ends_the_sweep_too(sweep, tmp_path):
  past = tmp_path / 'work' / 'refuses_seed1' / 'train'
  past.mkdir(parents=True)
  (past / 'metrics.jsonl').write_text('{"step": 3}')
  done = sweep('refuses', 'never')
  assert done.failed == ['refuses_seed1'] and done.refused


def test_a_refused_run_is_no_failure_of_its_variant(sweep, tmp_path):
  sweep('refuses')
  assert not (tmp_path / report.FAILURES).exists()


def test_a_run_that_the_table_has_twice_is_refused(sweep, opened, tmp_path):
  sweep('ends')
  table = tmp_path / runs.TABLE
  head, row = table.read_text().splitlines()
  table.write_text(f'{head}\n{row}\n{row}\n')
  with pytest.raises(errors.ConfigError, match='received 2 for ends'):
    opened('ends')
  with pytest.raises(errors.ConfigError, match='received 2 for ends'):
    report.read(table)


@pytest.mark.parametrize(
  ('changed', 'message'),
  [
    ({'variant': 'other'}, r"received \('other', 1\)"),
    ({'seed': 7}, r"received \('ends', 7\)"),
    ({'seconds': None}, 'received one without seconds'),
    ({'curve': 5}, 'received a damaged curve'),
  ],
)
def test_a_row_of_another_run_in_a_folder_is_refused(
  sweep, opened, tmp_path, changed, message
):
  sweep('ends')
  (tmp_path / runs.TABLE).unlink()
  path = tmp_path / 'work' / 'ends_seed1' / 'result.json'
  row = json.loads(path.read_text()) | changed
  path.write_text(json.dumps({k: v for k, v in row.items() if v is not None}))
  with pytest.raises(errors.ConfigError, match=message):
    opened('ends')


def test_a_file_of_a_run_that_is_nested_without_end_is_refused(
  sweep, opened, tmp_path
):
  sweep('ends')
  path = tmp_path / 'work' / 'ends_seed1' / 'result.json'
  path.write_text('[' * 100_000)
  with pytest.raises(errors.ConfigError, match='expected a JSON object'):
    opened('ends')


def test_without_a_refusal_all_runs_end(sweep):
  done = sweep('fails', 'steps', jobs=2)
  assert len(done.failed) == 2 and not done.refused


def test_sweeps_that_share_a_table_keep_the_rows_of_all(opened, tmp_path):
  """Two machines divide the seeds."""
  sweeps = [opened('ends', 'fails', seed=seed) for seed in (1, 2)]
  for one in sweeps:
    run(one)
  sweeps[0].write()
  for name in ('results', 'curves', 'failures'):
    rows = pd.read_csv(tmp_path / f'{name}.csv')
    assert sorted(rows['seed']) == [1, 2], name


def test_a_run_that_another_sweep_finished_is_finished(opened):
  waiting, other = opened('ends'), opened('ends')
  run(other)
  waiting.write()
  assert waiting.missing == []


def test_a_row_that_another_sweep_made_with_other_flags_is_kept(
  opened, tmp_path
):
  sweep = opened('ends')
  row = {'variant': 'ends', 'seed': 1, 'flags': '--do=other --seed=1'}
  pd.DataFrame([row]).to_csv(tmp_path / 'results.csv', index=False)
  with pytest.raises(errors.ConfigError, match='"--do=other --seed=1". Use'):
    sweep.write()
  (found,) = pd.read_csv(tmp_path / 'results.csv').to_dict('records')
  assert found == row


@pytest.mark.parametrize('name', ['ends', 'fails'])
@pytest.mark.parametrize(
  ('changed', 'message'),
  [
    ({'flags': ('--rate=2',)}, 'with the flags "--do=.* --rate=2 --seed=1", '),
    ({'scoring': ('--subset=test',)}, 'evaluation "mnist: --subset=test", '),
  ],
)
def test_a_run_that_has_begun_goes_on_only_as_it_began(
  opened, name, changed, message
):
  run(opened(name))
  opened(name)
  with pytest.raises(errors.ConfigError, match=message):
    opened(name, **changed)


@pytest.mark.parametrize('content', ['{"flags": ', '[]', ''])
@pytest.mark.parametrize('name', ['flags.json', 'result.json'])
def test_a_damaged_file_of_a_run_is_one_line(opened, tmp_path, name, content):
  run(opened('ends'))
  path = tmp_path / 'work' / 'ends_seed1' / name
  path.write_text(content)
  (tmp_path / 'results.csv').unlink()
  if name == 'flags.json':
    path.with_name('result.json').unlink()
  with pytest.raises(errors.ConfigError, match=f'{path}: expected a JSON obj'):
    opened('ends')


def test_rows_without_an_evaluation_are_those_of_older_versions(
  opened, tmp_path
):
  run(opened('ends'))
  table = pd.read_csv(tmp_path / 'results.csv').drop(columns='evaluation')
  table.to_csv(tmp_path / 'results.csv', index=False)
  assert opened('ends').missing == []
  # A newer row beside them adds the column.
  table.assign(evaluation='').to_csv(tmp_path / 'results.csv', index=False)
  assert opened('ends').missing == []


def test_a_lost_table_of_curves_is_written_again(opened, tmp_path):
  run(opened('ends'))
  curves = tmp_path / 'curves.csv'
  before = curves.read_bytes()
  curves.unlink()
  opened('ends').write()
  assert curves.read_bytes() == before


def test_a_file_that_cannot_be_written_is_one_line(opened, tmp_path):
  log = tmp_path / 'work' / 'fails_seed1' / 'log.txt'
  log.mkdir(parents=True)
  with pytest.raises(
    errors.TrainingError, match=rf'write {log}, received: Is a directory\.'
  ):
    run(opened('fails'))


@pytest.fixture
def run_on(opened, monkeypatch):
  """Runs a sweep of one variant on a machine."""

  def run_name(machine, name):
    found = dict.fromkeys(('machine', 'processor', 'switches'), machine)
    monkeypatch.setattr(results, 'provenance', lambda: {'commit': 'c'} | found)
    run(opened(name))

  return run_name


def test_the_row_of_a_continued_run_names_all_of_its_machines(run_on, tmp_path):
  run_on('AMD', 'stops, then ends')
  run_on('Intel', 'stops, then ends')
  (failure,) = pd.read_csv(tmp_path / 'failures.csv').to_dict('records')
  assert failure['machine'] == 'AMD'
  (row,) = pd.read_csv(tmp_path / 'results.csv').to_dict('records')
  assert row['machine'] == row['processor'] == 'AMD; then Intel'
  assert row['commit'] == 'c'
  assert 'seconds' not in report.summary(report.read(tmp_path / 'results.csv'))


def test_a_run_that_begins_again_names_its_last_machine(run_on, tmp_path):
  """A run without a checkpoint starts from its first step."""
  for machine in ('AMD', 'Intel'):
    run_on(machine, 'fails')
  failed = pd.read_csv(tmp_path / 'failures.csv')
  assert list(failed['machine']) == ['AMD', 'Intel']


def test_the_start_of_a_run_of_an_older_version_is_unknown(run_on, tmp_path):
  run_on('AMD', 'stops, then ends')
  begun = tmp_path / 'work' / 'stops, then ends_seed1' / 'flags.json'
  made = json.loads(begun.read_text())
  begun.write_text(json.dumps({k: made[k] for k in ('flags', 'evaluation')}))
  run_on('Intel', 'stops, then ends')
  (row,) = pd.read_csv(tmp_path / 'results.csv').to_dict('records')
  assert row['machine'] == 'unknown; then Intel'
