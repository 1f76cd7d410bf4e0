"""Writes tables of measurements to files."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import pandas as pd
  from matplotlib import figure


def write(
  folder: str | os.PathLike[str],
  name: str,
  table: 'pd.DataFrame',
  chart: 'figure.Figure | None' = None,
  index: bool = False,
) -> str:
  """Writes a table and its chart into a directory; creates it if missing.

  Args:
    folder: output directory.
    name: name of the files NAME.csv and NAME.png.
    table: contents of the CSV file.
    chart: contents of the PNG file, or None.
    index: True writes the table's index as a column.

  Returns:
    Path of the PNG file, whether or not it is written.
  """
  os.makedirs(folder, exist_ok=True)
  path = os.path.join(folder, name)
  table.to_csv(f'{path}.csv', index=index)
  if chart is not None:
    chart.savefig(f'{path}.png')
  return f'{path}.png'
