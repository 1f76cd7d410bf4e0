"""Joins the starts of the race against PyTorch, and compares their steps.

  python join_starts.py [RUNS]

RUNS/NET/RATEmbit/batch_B/start_K has the measure_exchange.csv of start K. Rows
are added to starts.csv, unless it has the start already. Then race.csv is
written from all rows of starts.csv. The unit is a start: a start's seconds are
the median of its rounds, and intervals are those of the starts. Ratios are
geometric means of the starts' ratios, which have both programs in each. The
case `fastest ddp` has in each start the seconds of the fastest hook there.
"""

import pathlib
import re
import sys

import numpy as np
import pandas as pd

from slim.datasets.records import disk
from terngrad.report.statistics import intervals

_FOLDER = pathlib.Path(__file__).parent
_STARTS = _FOLDER / 'starts.csv'
# The code that was chosen before the runs.
CANDIDATE = 'error_feedback+stc'
FASTEST = 'fastest ddp'
# PyTorch's case and the same method of this project.
SAME_METHOD = {'ddp:hook=powersgd,rank=1': 'error_feedback+powersgd:rank=1'}
_CONDITION = ['net', 'mbit_s', 'batch', 'processor']
_ROW = [*_CONDITION, 'start', 'case']
# What every start of a case has in common, or a list of what they had.
_SAME = ['oneDNN', 'peer']
# The heading of half widths.
_HALF = intervals.heading(intervals.LEVEL)
# A start's table, below RUNS.
_NAME = re.compile(
  r'([^/]+)/(\d+)mbit/batch_(\d+)/start_(\d+)/measure_exchange\.csv$'
)
_EXPECTED = (
  'expected NET/RATEmbit/batch_B/start_K/measure_exchange.csv of finished '
  'starts, with numbers for RATE, B and K'
)


def read(runs: pathlib.Path) -> pd.DataFrame:
  """Returns the rows of all finished starts in a folder."""
  tables = []
  for path in sorted(runs.glob('*/*/*/*/measure_exchange.csv')):
    found = _NAME.search(path.as_posix())
    if found is None:
      raise SystemExit(f'{path}: {_EXPECTED}')
    net, *numbers = found.groups()
    rate, batch, start = map(int, numbers)
    table = pd.read_csv(path)
    table['seconds'] = table['milliseconds'] / 1000
    tables.append(table.assign(net=net, mbit_s=rate, batch=batch, start=start))
  if not tables:
    raise SystemExit(
      f'{runs}: {_EXPECTED}, received none. Give the folder RUNS of the page.'
    )
  return pd.concat(tables)


def add(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
  """Returns the old rows, and those new ones whose start is not among them."""
  columns = [*_ROW, 'seconds', 'quartiles', 'payload_bytes']
  new = new[[*columns, 'interface_bytes', 'threads', *_SAME]]
  return pd.concat([old, new]).drop_duplicates(_ROW, ignore_index=True)


def check_cases(starts: pd.DataFrame) -> None:
  """Exits if a start lacks a case that another start of its condition has.

  Means of other starts, and the fastest of fewer hooks, cannot be compared.
  """
  for condition, table in starts.groupby(_CONDITION, sort=False):
    cases = {*table['case']}
    for start, rows in table.groupby('start'):
      if missing := cases - {*rows['case']}:
        words = zip(_CONDITION, condition, strict=True)
        raise SystemExit(
          f'{", ".join(f"{name}={value}" for name, value in words)}: expected '
          f'the same cases in every start, received start {start} without '
          f'{", ".join(sorted(missing))}. Finish this start, or remove it.'
        )


def summarize(starts: pd.DataFrame) -> pd.DataFrame:
  """Returns a row for each net, rate, batch, processor and case."""
  rows = []
  for condition, table in starts.groupby(_CONDITION, sort=False):
    seconds = table.pivot(index='start', columns='case', values='seconds')
    common = dict(zip(_CONDITION, condition, strict=True))
    for case, own in table.groupby('case', sort=False):
      sent = {
        'payload_bytes': int(own['payload_bytes'].iloc[0]),
        'interface_bytes': round(own['interface_bytes'].median()),
        **{name: '; '.join(own[name].fillna('').unique()) for name in _SAME},
      }
      rows.append(common | _compared(seconds, str(case)) | sent)
    peers = [name for name in seconds if name.startswith('ddp')]
    seconds[FASTEST] = seconds[peers].min(axis=1)
    rows.append(common | _compared(seconds, FASTEST))
  return pd.DataFrame(rows).astype(
    {'payload_bytes': 'Int64', 'interface_bytes': 'Int64'}
  )


def _compared(seconds: pd.DataFrame, case: str) -> dict[str, object]:
  """Returns the columns of a case's seconds, and ratios of others to them."""
  mean, _, half = intervals.interval(seconds[case].dropna())
  starts = int(seconds[case].count())
  row = {'case': case, 'starts': starts, 'seconds': mean, _HALF: half}
  for other, name in (
    ('candidate', CANDIDATE),
    ('same', SAME_METHOD.get(case)),
  ):
    if name in seconds:
      logs = np.log(seconds[name] / seconds[case]).dropna()
      center, _, width = intervals.interval(logs)
      row |= {
        f'{other} over case': np.exp(center),
        f'{other} low': np.exp(center - width),
        f'{other} high': np.exp(center + width),
      }
  return row


def main():
  """Adds new starts and writes both tables."""
  starts = pd.read_csv(_STARTS) if _STARTS.exists() else pd.DataFrame()
  if len(sys.argv) > 1:
    starts = add(starts, read(pathlib.Path(sys.argv[1])))
    check_cases(starts)
    text = starts.to_csv(index=False, float_format='%.9g')
    disk.write_text(_STARTS, text)
    starts = pd.read_csv(_STARTS)
  check_cases(starts)
  table = summarize(starts)
  text = table.to_csv(index=False, float_format='%.6g')
  disk.write_text(_FOLDER / 'race.csv', text)
  columns = [*_CONDITION, 'case', 'starts', 'seconds', _HALF]
  columns += ['candidate over case', 'candidate low', 'candidate high']
  print(table[columns].to_string(index=False, float_format='{:.3g}'.format))


if __name__ == '__main__':
  main()
