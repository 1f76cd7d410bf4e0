"""Which failures end a sweep, with a program in place of the trainer."""

import multiprocessing

import pandas as pd
import pytest

from terngrad.sweep import definition
from terngrad.sweep import runs

PROGRAM = """
import pathlib, sys
flags = dict(word.partition('=')[::2] for word in sys.argv[1:])
def step():
  pathlib.Path(flags['--train_dir']).mkdir(exist_ok=True)
  pathlib.Path(flags['--train_dir'], 'metrics.jsonl').write_text('{}')
def end(code):
  print('error: here is the cause. ' + 300 * 'x' + ' And the remedy.')
  sys.exit(code)
if sys.argv[1] == 'eval':
  end(2)
do = flags['--do']
if do == 'steps':
  step()
if do == 'evaluates':
  sys.exit(0)
end(1 if do == 'fails' else 2)
"""


@pytest.fixture
def sweep(monkeypatch, tmp_path):
  """Starts a sweep of a variant for each name; returns it at its end."""
  (tmp_path / 'trainer_like.py').write_text(PROGRAM)
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  monkeypatch.setattr(runs, '_MAIN', 'trainer_like')

  def run(*names, jobs=1):
    cells = [definition.Cell(name, 1, (f'--do={name}',)) for name in names]
    found = definition.Definition(tmp_path, 'mnist', {}, {'': ()}, cells)
    made = runs.Sweep(found, 'D', str(tmp_path / 'work'), tmp_path)
    stop_request, sender = multiprocessing.Pipe(duplex=False)
    with stop_request, sender:
      assert made.run(jobs, lambda line: None, stop_request)
    return made

  return run


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
  assert rows['code'].tolist() == [1, 2, 2, 2]


def test_a_continued_run_that_is_refused_ends_the_sweep_too(sweep, tmp_path):
  past = tmp_path / 'work' / 'refuses_seed1' / 'train'
  past.mkdir(parents=True)
  (past / 'metrics.jsonl').write_text('{"step": 3}')
  done = sweep('refuses', 'never')
  assert done.failed == ['refuses_seed1'] and done.refused


def test_without_a_refusal_all_runs_end(sweep):
  done = sweep('fails', 'steps', jobs=2)
  assert len(done.failed) == 2 and not done.refused
