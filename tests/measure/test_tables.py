import errno

import pandas as pd
import pytest
from matplotlib import figure

from terngrad import errors
from terngrad.measure import tables


def names(folder):
  return sorted(path.name for path in folder.iterdir())


def test_table_and_chart_are_written_into_a_new_folder(tmp_path):
  table = pd.DataFrame({'case': ['a', 'b'], 'ratio': [1.0, 0.5]})
  folder = tmp_path / 'new' / 'folder'
  path = tables.write(folder, 'speed', table, figure.Figure())
  assert names(folder) == ['speed.csv', 'speed.png']
  assert path == f'{folder}/speed.png'
  assert (folder / 'speed.csv').read_text() == 'case,ratio\na,1.0\nb,0.5\n'
  assert (folder / 'speed.png').read_bytes().startswith(b'\x89PNG')


def test_the_index_is_written_as_a_column_on_request(tmp_path):
  table = pd.DataFrame({'ms': {'a': 1.0}})
  tables.write(tmp_path, 'speed', table, index=True)
  assert names(tmp_path) == ['speed.csv']
  assert (tmp_path / 'speed.csv').read_text() == ',ms\na,1.0\n'


@pytest.mark.parametrize('kind', [pd.DataFrame, figure.Figure])
def test_a_full_disk_is_one_error_and_leaves_the_old_files(
  tmp_path, monkeypatch, kind
):
  table, chart = pd.DataFrame({'a': [1]}), figure.Figure()
  tables.write(tmp_path, 'speed', table, chart)
  before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

  def fill(content, path, **options):
    path = str(path)
    with open(path, 'w', encoding='utf-8') as file:
      file.write('half')
    raise OSError(errno.ENOSPC, 'No space left on device', path)

  method = {pd.DataFrame: 'to_csv', figure.Figure: 'savefig'}[kind]
  monkeypatch.setattr(kind, method, fill)
  with pytest.raises(errors.TrainingError, match='No space left.*Free some'):
    tables.write(tmp_path, 'speed', table, chart)
  assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(errors.TrainingError, match='file/x: expected to write'):
    tables.write(tmp_path / 'file/x', 'speed', pd.DataFrame())
