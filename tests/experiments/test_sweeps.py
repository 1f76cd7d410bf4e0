"""Every sweep in experiments has valid runs and matches its results."""

import pathlib

import pandas as pd
import pytest

from terngrad.cli import sweep as sweep_cli
from terngrad.config import options
from terngrad.sweep import definition
from terngrad.sweep import runs
from tests.cli import starters

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.parent for path in ROOT.glob('experiments/*/sweep.ini'))


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request, monkeypatch):
  # Codes of the experiment, registered as those of another package.
  if [*request.param.glob('*.dist-info')]:
    monkeypatch.syspath_prepend(request.param)
  return request.param


def test_runs_are_valid_and_scored_with_their_net(folder):
  found = definition.read(folder)
  configs = sweep_cli.configurations(found)
  program = f'terngrad.bin.{found.program}_eval'
  for words in found.scoring.values():
    scored = options.by_name(starters.parse(program, words))
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


def test_the_readme_shows_the_command(folder):
  text = (folder / 'README.md').read_text(encoding='utf-8')
  assert f'terngrad sweep experiments/{folder.name}' in text
