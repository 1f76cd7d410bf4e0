"""The summary of a sweep as Markdown: a table for each ranking."""

from collections.abc import Sequence

import pandas as pd

from terngrad.report import sweep_page
from terngrad.report.statistics import rankings

# Below the tables.
_EQUAL = (
  '\\* All values are equal, so the interval has no width. With few seeds this '
  'is chance, and no sign of certainty.'
)


def text(table: pd.DataFrame, notes: Sequence[str] = ()) -> str:
  """Formats a summary, with a note on intervals without width.

  Args:
    table: from `sweep.summary`.
    notes: further notes, from `sweep_page.notes`.
  """
  texts, is_marked = [], False
  for name, part in rankings.split(table).items():
    marks = sweep_page.marked(part)
    rows = sweep_page.texts(part, marks)
    lines = [list(part.columns), ['---'] * len(part.columns), *rows]
    rows_text = ''.join(
      f'| {" | ".join(map(_escaped, line))} |\n' for line in lines
    )
    texts.append(f'{name}:\n\n{rows_text}' if name else rows_text)
    is_marked |= bool(marks.to_numpy().any())
  shown = [_EQUAL, *notes] if is_marked else notes
  return '\n'.join([*texts, *(f'{note}\n' for note in shown)])


def _escaped(cell: str) -> str:
  """Returns a cell's text, which Markdown would read as a border or as HTML."""
  return cell.replace('&', '&amp;').replace('<', '&lt;').replace('|', '\\|')
