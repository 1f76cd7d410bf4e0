"""Writes the tables of pages again, from the CSV files that they name.

python experiments/write_tables.py

A table is between two marks:

  <!-- table: FILE.csv[COLUMN=VALUE,VALUE; COLUMN=VALUE] COLUMN; COLUMN -->
  <!-- end of table -->

FILE is relative to the page. In brackets, which may lack, are the values that a
row must have; a value ends in * if any text may follow. A COLUMN may have a
heading and a format of Python, as in `accuracy = accuracy, % :.2%`.
"""

import csv
import pathlib
import re

from slim.datasets.records import disk

ROOT = pathlib.Path(__file__).resolve().parents[1]
_MARK = re.compile(
  r'(<!-- table: ([\w./-]+\.csv)(?:\[([^\]]*)\])? (.*?) -->\n).*?'
  r'(<!-- end of table -->)',
  re.DOTALL,
)
_MISSING = '<!-- table: '


def pages() -> list[pathlib.Path]:
  """Returns the documents that may have tables."""
  patterns = 'README.md', 'docs/*.md', 'experiments/README.md'
  found = [p for pattern in patterns for p in ROOT.glob(pattern)]
  return sorted([*found, *ROOT.glob('experiments/*/README.md')])


def rewrite(page: pathlib.Path) -> str:
  """Returns the text of a page with its tables made from their files.

  Raises:
    ValueError: a mark cannot be read, or names a column that is missing, or no
      row is left.
  """
  text = page.read_text(encoding='utf-8')

  def table(match: re.Match[str]) -> str:
    start, name, chosen, columns, end = match.groups()
    lines = make(page.parent / name, chosen or '', columns)
    return f'{start}\n{lines}\n{end}'

  found = _MARK.findall(text)
  if len(found) != text.count(_MISSING):
    raise ValueError(
      f'{page}: expected {text.count(_MISSING)} tables between a mark and '
      f'"<!-- end of table -->", received {len(found)}.'
    )
  return _MARK.sub(table, text)


def make(path: pathlib.Path, chosen: str, columns: str) -> str:
  """Returns a table in Markdown; see the module for the arguments."""
  with path.open(encoding='utf-8', newline='') as file:
    rows = [row for row in csv.DictReader(file) if _is_chosen(row, chosen)]
  specs = [_column(text) for text in columns.split(';')]
  if not rows or {name for name, _, _ in specs} - {*rows[0]}:
    raise ValueError(
      f'{path}: expected rows with {columns}, received {len(rows)} rows'
      f'{" with " + ", ".join(rows[0]) if rows else ""}. Correct the mark.'
    )
  lines = [[head for _, head, _ in specs], ['---'] * len(specs)]
  lines += [[_cell(row[n], spec) for n, _, spec in specs] for row in rows]
  return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def _column(text: str) -> tuple[str, str, str]:
  """Returns a column's name, its heading, and its format."""
  text, _, spec = text.partition(' :')
  name, _, head = text.partition(' = ')
  return name.strip(), (head or name).strip(), spec.strip()


def _cell(value: str, spec: str) -> str:
  text = format(float(value), spec) if spec and value else value
  return text.replace('|', '\\|')


def _is_chosen(row: dict[str, str], chosen: str) -> bool:
  for condition in filter(None, map(str.strip, chosen.split(';'))):
    name, _, values = condition.partition('=')
    if not any(
      row[name.strip()] == value
      or (value.endswith('*') and row[name.strip()].startswith(value[:-1]))
      for value in values.split(',')
    ):
      return False
  return True


def main() -> None:
  """Writes the pages that change."""
  for page in pages():
    text = rewrite(page)
    if text != page.read_text(encoding='utf-8'):
      disk.write_text(page, text)


if __name__ == '__main__':
  main()
