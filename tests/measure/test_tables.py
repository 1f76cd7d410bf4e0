import pandas as pd
from matplotlib import figure

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
