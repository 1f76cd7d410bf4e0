"""Writes tables of measurements to files."""

import os
from typing import TYPE_CHECKING

from slim.datasets.records import disk
from terngrad import errors

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

  Raises:
    errors.TrainingError: a file cannot be written; an old one stays.
  """
  path = os.path.join(folder, name)
  with errors.explain_write_errors(os.fspath(folder)):
    os.makedirs(folder, exist_ok=True)
    with disk.replace_file(f'{path}.csv') as hidden:
      table.to_csv(hidden, index=index)
    if chart is not None:
      with disk.replace_file(f'{path}.png') as hidden:
        chart.savefig(hidden, format='png')
  return f'{path}.png'
