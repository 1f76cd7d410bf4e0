"""Every sweep in experiments has valid runs and matches its results."""

import fnmatch
import pathlib
import re

import pandas as pd
import pytest

from terngrad.cli import commands
from terngrad.cli import sweep as sweep_cli
from terngrad.config import options
from terngrad.sweep import definition
from terngrad.sweep import runs
from tests.cli import starters

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.parent for path in ROOT.glob('experiments/**/sweep.ini'))


def name_of(folder):
  """The folder's path in experiments, such as 'records/final'."""
  return str(folder.relative_to(ROOT / 'experiments'))


@pytest.fixture(params=FOLDERS, ids=name_of)
def folder(request, monkeypatch):
  # Codes of the experiment, registered as those of another package.
  if [*request.param.glob('*.dist-info')]:
    monkeypatch.syspath_prepend(request.param)
  return request.param


def test_runs_are_valid_and_scored_with_their_net(folder):
  found = definition.read(folder)
  configs = sweep_cli.configurations(found)
  evaluation = commands.load(commands.find(('eval', found.program)))
  for words in found.scoring.values():
    scored = options.by_name(starters.parse_words(evaluation, words))
    for config in configs.values():
      trained = options.by_name(config)
      for name in ('net', 'image_size', 'dataset_name'):
        assert scored[name] == trained[name]


def test_finished_runs_belong_to_the_sweep(folder, tmp_path):
  found = definition.read(folder)
  table = folder / runs.TABLE
  if not table.exists():
    pytest.skip('not run')
  finished = pd.read_csv(table, dtype=str)
  flags = {(c.variant, str(c.seed)): runs.flags_of(c) for c in found.cells}
  for row in finished.to_dict('records'):
    assert flags[row['variant'], row['seed']] == row['flags']


@pytest.mark.gate_every(3)
def test_committed_tables_match_the_runs(folder, tmp_path):
  if not (folder / 'sweep.csv').exists():
    pytest.skip('no tables')
  sweep_cli.render(folder, tmp_path)
  for name in ('sweep.csv', 'sweep.md'):
    assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
  assert (tmp_path / 'sweep.png').exists()
  assert (tmp_path / 'sweep.html').stat().st_size < 100_000


@pytest.mark.parametrize('name', ['cifar10_local_rates'])
def test_later_stages_that_a_sweep_suggests_are_valid(name, tmp_path):
  text = (ROOT / f'experiments/{name}/sweep.ini').read_text(encoding='utf-8')
  lines = re.findall(r'`(\S+ = [^`]+)`', text.replace('\n# ', ' '))
  seeds = [line for line in lines if re.fullmatch(r'\S+ = [\d ]+', line)]
  (baseline,) = {*lines} - {*seeds}
  text = text.replace(
    '[baselines]', '\n'.join([*seeds, '[baselines]', baseline])
  )
  (tmp_path / 'sweep.ini').write_text(text, encoding='utf-8')
  first = definition.read(ROOT / f'experiments/{name}')
  later = definition.read(tmp_path)
  sweep_cli.configurations(later)
  added = {c.variant for c in later.cells} - {c.variant for c in first.cells}
  assert len(added) >= len(seeds) > 1
  pattern, _, variant = baseline.split()
  last = fnmatch.filter(added, pattern)
  assert last and {later.baselines[one] for one in last} == {variant}


def test_the_readme_shows_the_command(folder):
  pages = folder / 'README.md', folder.parent / 'README.md'
  page = next(page for page in pages if page.exists())
  text = page.read_text(encoding='utf-8')
  assert f'terngrad sweep experiments/{name_of(folder)}' in text
