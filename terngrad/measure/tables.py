"""Tables of measurements as files."""

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
  """Writes a table and its chart into a folder, which is made where it is not.

  Args:
    folder: where to write.
    name: of the files: NAME.csv and NAME.png.
    table: of the CSV file.
    chart: of the PNG file.
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
