"""Tables of pages are those that `experiments/write_tables.py` writes."""

import importlib.util
import math
import pathlib

import pandas as pd
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load(name):
  """A script of experiments as a module."""
  path = ROOT / f'experiments/{name}.py'
  spec = importlib.util.spec_from_file_location(path.stem, path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


write_tables = load('write_tables')
PAGES = write_tables.pages()


def test_tables_of_pages_are_written_again_to_the_byte():
  wrong = [
    page.relative_to(ROOT).as_posix()
    for page in PAGES
    if write_tables.rewrite(page) != page.read_text(encoding='utf-8')
  ]
  assert wrong == [], 'run python experiments/write_tables.py'


def test_steps_to_accuracy_are_those_of_the_committed_runs():
  script = load('time_to_accuracy/make_table')
  text = pd.DataFrame(script.rows()).to_csv(index=False)
  committed = ROOT / 'experiments/time_to_accuracy/table.csv'
  assert text == committed.read_text(encoding='utf-8')


def test_seconds_of_whole_steps_are_those_of_the_committed_starts():
  script = load('time_to_accuracy/make_table')
  folder = ROOT / 'experiments/time_to_accuracy'
  starts = pd.read_csv(folder / 'starts.csv')
  text = pd.DataFrame(script.whole_rows(starts)).to_csv(index=False)
  assert text == (folder / 'whole.csv').read_text(encoding='utf-8')


def test_steps_to_an_accuracy_are_interpolated_at_the_first_crossing():
  curve = [(1000, 0.5), (2000, 0.7), (3000, 0.6), (4000, 0.8)]
  table = pd.DataFrame(curve, columns=['steps', 'accuracy'])
  table = table.assign(variant='a', seed=1)
  steps_to = load('time_to_accuracy/make_table').steps_to
  assert steps_to(table, 'a', 1, 0.65) == pytest.approx(1750)
  assert steps_to(table, 'a', 1, 0.75) == pytest.approx(3750)
  # Before the first checkpoint, after the last one, and of another seed.
  for accuracy, seed in ((0.4, 1), (0.9, 1), (0.6, 2)):
    assert math.isnan(steps_to(table, 'a', seed, accuracy))


def test_experiments_have_tables():
  marked = [p for p in PAGES if '<!-- table: ' in p.read_text(encoding='utf-8')]
  assert len(marked) > 5


@pytest.fixture
def page(tmp_path):
  (tmp_path / 't.csv').write_text('code,share,n\na,0.5,1\nb|c,0.25,2\nbd,,3\n')
  path = tmp_path / 'README.md'

  def write(mark, body='old\n'):
    path.write_text(f'Text.\n\n{mark}\n{body}<!-- end of table -->\n\nMore.\n')
    return path

  return write


def test_a_table_has_the_chosen_rows_and_columns_in_their_formats(page):
  mark = '<!-- table: t.csv[code=b*; n=2,3] code; share = part :.1% -->'
  text = write_tables.rewrite(page(mark))
  table = '| code | part |\n| --- | --- |\n| b\\|c | 25.0% |\n| bd |  |\n'
  assert text == (
    f'Text.\n\n{mark}\n\n{table}\n<!-- end of table -->\n\nMore.\n'
  )
  path = page(mark)
  path.write_text(text)
  assert write_tables.rewrite(path) == text


@pytest.mark.parametrize(
  'mark',
  [
    '<!-- table: t.csv code; missing -->',
    '<!-- table: t.csv[code=z] code -->',
    '<!-- table: t.csv -->',
  ],
)
def test_marks_that_give_no_table_are_refused(page, mark):
  with pytest.raises(ValueError, match='expected'):
    write_tables.rewrite(page(mark))
