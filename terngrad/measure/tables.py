"""Tables of measurements as files."""

import os


def write(folder, name, table, chart=None, index=False):
  """Writes a table and its chart into a folder, which is made where it is not.

  Args:
    folder: path.
    name: of the files: NAME.csv and NAME.png.
    table: `pandas.DataFrame`.
    chart: `matplotlib.figure.Figure`, or None.
    index: True where the table's index is a column of its own.

  Returns:
    Path of the chart, where there is one.
  """
  os.makedirs(folder, exist_ok=True)
  path = os.path.join(folder, name)
  table.to_csv(f'{path}.csv', index=index)
  if chart is not None:
    chart.savefig(f'{path}.png')
  return f'{path}.png'
