"""Summary of a sweep: variants, seeds, and confidence intervals.

Every mean accuracy has its spread over the seeds. A variant is compared with
its baseline seed by seed, so effects of a seed on both cancel.
"""

import collections
import csv
import math
import os
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib import figure

from slim.datasets.records import disk
from terngrad import errors
from terngrad.measure import tables
from terngrad.report import sweep_markdown
from terngrad.report import sweep_page
from terngrad.report import sweep_plot
from terngrad.report.statistics import intervals
from terngrad.report.statistics import machines
from terngrad.report.statistics import paired
from terngrad.report.statistics import rankings
from terngrad.report.statistics import sweep_rules

# A table beside results.csv: one row per scored epoch of a run.
CURVES = 'curves.csv'
# One row per failed run, written by `terngrad.sweep.failures`.
FAILURES = 'failures.csv'
_NO_FAILURES = pd.DataFrame()
COLUMNS = {
  'variant',
  'seed',
  'steps',
  'accuracy',
  'bits_per_element',
  'seconds',
}
_FLOATS = (
  'accuracy',
  'bits_per_byte',
  'bits_per_element',
  'loss',
  'seconds',
)
_WHOLE_NUMBERS = ('seed', 'step', 'steps')
# Text columns: a value may look like a number, as the commit 076e364 does.
_TEXTS = ('variant', 'commit', 'error', 'evaluation')
# Prefix of additional scores, as in `terngrad.sweep.definition`.
_SCORE = 'accuracy_'
# Columns averaged over a variant's runs, and their headings.
_MEANS = {
  'steps': 'steps',
  'bits_per_byte': 'bits a byte',
  'bits_per_element': 'bits/element',
  'seconds': 'seconds',
  sweep_plot.MODELLED: sweep_plot.MODELLED,
}


def read_exactly(
  path: str | os.PathLike[str], columns: Collection[str] = ()
) -> pd.DataFrame:
  """Reads a results.csv without loss of precision.

  pandas' default float parser is inexact in version 2; these converters do not
  depend on the version.

  Args:
    path: path of the file, or of another table beside it.
    columns: names of required columns.

  Raises:
    OSError, ValueError: the file cannot be read, columns are missing, a row is
      incomplete, or a seed or a number of steps is no number.
  """
  names = pd.read_csv(path, nrows=0).columns
  _check_complete(path)
  floats = [n for n in names if n in _FLOATS or n.startswith(_SCORE)]
  readers = dict.fromkeys(floats, _number) | dict.fromkeys(_TEXTS, str)
  readers |= dict.fromkeys(_WHOLE_NUMBERS, _whole_number)
  if missing := sorted({*columns} - {*names}):
    raise ValueError(f'no column {", ".join(missing)}')
  # Of texts, pandas 3 would make NaN of '' and of 'nan'.
  absent = {name: [''] for name in names if name not in _TEXTS}
  return pd.read_csv(
    path, converters=readers, keep_default_na=False, na_values=absent
  )


def _check_complete(path: str | os.PathLike[str]) -> None:
  """Refuses rows with fewer fields than the first, which pandas completes."""
  with open(path, encoding='utf-8', newline='') as file:
    rows = csv.reader(file, strict=True)
    try:
      size = len(next(rows))
      for row in rows:
        if row and len(row) < size:
          raise ValueError(
            f'{len(row)} instead of {size} columns in line {rows.line_num}'
          )
    except csv.Error as error:
      raise ValueError(f'{error} in line {rows.line_num}') from error


def _number(text: str) -> float:
  """Parses a float; NaN if the run lacks this score, or it is not finite."""
  number = float(text or math.nan)
  return number if math.isfinite(number) else math.nan


def _whole_number(text: str) -> int:
  """Parses a seed or a number of steps, which no run lacks."""
  try:
    return int(text)
  except ValueError as error:
    raise ValueError(
      f'{text!r} instead of a seed or a number of steps'
    ) from error


def check_once(
  path: str | os.PathLike[str], runs: Sequence[tuple[str, int]]
) -> None:
  """Refuses a table with two rows of one run.

  Args:
    path: of the table.
    runs: variant and seed of each row.

  Raises:
    errors.ConfigError: names the first run that occurs twice.
  """
  for run, count in collections.Counter(runs).items():
    if count > 1:
      raise errors.ConfigError(
        f'{os.fspath(path)}: expected one row for each variant and seed, '
        f'received {count} for {run[0]} and seed {run[1]}. Remove all but one.'
      )


def read(path: str | os.PathLike[str]) -> pd.DataFrame:
  """Reads the runs of a results.csv that `terngrad sweep` wrote.

  Raises:
    errors.ConfigError: there is no such table, or it has other columns.
  """
  try:
    runs = read_exactly(path)
  except (OSError, ValueError) as error:
    raise errors.ConfigError(
      f'results: expected a readable results.csv, received "{error}". Run '
      '`terngrad sweep` first, or repair the file.'
    ) from error
  missing = sorted(COLUMNS - {*runs.columns})
  if missing or not len(runs):
    raise errors.ConfigError(
      f'{path}: expected one row per run with the columns '
      f'{", ".join(sorted(COLUMNS))}, received {len(runs)} rows; '
      f'missing columns: {", ".join(missing) or "none"}. Pass the results.csv '
      'of a sweep.'
    )
  check_once(path, [*zip(runs['variant'], runs['seed'], strict=True)])
  return runs


def read_curves(
  folder: str | os.PathLike[str], runs: pd.DataFrame
) -> pd.DataFrame:
  """Reads the accuracy curves of a sweep.

  Args:
    folder: directory of the sweep's results.
    runs: from `read`; their flags give the local steps, which count as steps.

  Returns:
    Rows by step, one column per variant: accuracy in % after an epoch, mean
    over the seeds; NaN at steps where no epoch of the variant ends. Empty if no
    epoch was scored.

  Raises:
    errors.ConfigError: `CURVES` exists but is not such a table.
  """
  rows = read_all_curves(folder)
  if rows.empty:
    return rows
  rows = rankings.curves_per_step(rows, runs)
  rows['accuracy'] *= 100
  return rows.pivot_table(index='step', columns='variant', values='accuracy')


def read_all_curves(folder: str | os.PathLike[str]) -> pd.DataFrame:
  """Reads the scores of each run of a sweep after every epoch.

  Args:
    folder: directory of the sweep's results.

  Returns:
    One row per epoch of a run: variant, seed, step, accuracy in [0, 1], and in
    newer tables loss and bits a byte; NaN where it is not finite. Empty if no
    epoch was scored.

  Raises:
    errors.ConfigError: `CURVES` exists but is not such a table.
  """
  return _read_optional(folder, CURVES, {'variant', 'seed', 'step', 'accuracy'})


def read_failures(folder: str | os.PathLike[str]) -> pd.DataFrame:
  """Reads the failed runs of a sweep.

  Args:
    folder: directory of the sweep's results.

  Returns:
    One row per failed run; empty, without columns, if no run failed.

  Raises:
    errors.ConfigError: `FAILURES` exists but is not such a table.
  """
  return _read_optional(folder, FAILURES, {'variant', 'seed', 'error'})


def failed_runs(
  failures: pd.DataFrame, finished: pd.DataFrame
) -> list[tuple[str, int]]:
  """Returns (variant, seed) of the runs that failed and never finished.

  Args:
    failures: from `read_failures`.
    finished: from `read`.
  """
  if failures.empty:
    return []
  failed, ended = (
    {*zip(table['variant'].map(str), table['seed'].map(int), strict=True)}
    for table in (failures, finished)
  )
  return sorted(failed - ended)


def _read_optional(
  folder: str | os.PathLike[str], name: str, columns: Collection[str]
) -> pd.DataFrame:
  """Reads a table with `columns`, or returns an empty one if it is missing."""
  path = os.path.join(folder, name)
  if not os.path.exists(path):
    return pd.DataFrame()
  try:
    return read_exactly(path, columns)
  except (OSError, ValueError) as error:
    raise errors.ConfigError(
      f'{path}: expected a table with {", ".join(sorted(columns))}, received '
      f'"{error}". Repair or remove the file.'
    ) from error


def summary(
  runs: pd.DataFrame,
  baselines: Mapping[str, str] | None = None,
  failures: pd.DataFrame = _NO_FAILURES,
  rules: sweep_rules.SweepRules = sweep_rules.DEFAULT,
) -> pd.DataFrame:
  """Computes one row per variant; in each ranking the most accurate first.

  Args:
    runs: from `read`.
    baselines: maps variants to their baselines; other variants are not
      compared.
    failures: from `read_failures`, if any.
    rules: level of the intervals, and whether rates separate rankings.

  Returns:
    Columns: accuracy in % (mean over the seeds), standard deviation, and half
    width of the confidence interval of the mean (both NaN for one seed); the
    mean difference to the baseline over common seeds, in percentage points, its
    half width, alone and pooled, Dunnett's p-value, and the baseline's name if
    there are several (see `statistics.paired`); means of further scores in %,
    of bits per element, of seconds, and of modelled seconds if runs have them;
    NaN or no seconds for virtual nodes, and none if the machines differ or are
    not known; steps if they differ between runs. Local steps count as steps,
    and bits are per element and such a step. If there are several rankings,
    their names (see `rankings.labels`). If any run failed, the number of failed
    runs; a variant with failures only is last, with accuracy NaN. Variants of
    which a run failed and never finished are not compared.

  Raises:
    errors.ConfigError: a baseline has no runs.
  """
  baselines = baselines or {}
  known = sorted({*runs['variant']})
  if unknown := sorted({*baselines.values()} - {*known}):
    raise errors.ConfigError(
      f'baseline: expected one of {", ".join(known)}, received {unknown[0]!r}. '
      'Choose a variant that has finished runs.'
    )
  # pandas leaves out a variant without any accuracy.
  accuracy = runs.pivot_table(
    index='seed', columns='variant', values='accuracy', aggfunc='last'
  ).reindex(columns=known)
  used = {v: baselines[v] for v in known if v in baselines}
  lost = {name for name, _ in failed_runs(failures, runs)}
  whole = paired.without_lost(used, lost)
  compared = paired.compare(100 * accuracy, whole, rules.level)
  runs = _with_comparable_seconds(rankings.per_step(runs))
  differ = runs['steps'].nunique() > 1
  rows = []
  for variant, variant_runs in runs.groupby('variant', sort=False):
    row = _spread(str(variant), accuracy[variant], rules.level)
    row |= compared.get(str(variant), {})
    rows.append(row | _means(variant_runs, differ))
  table = pd.DataFrame(rows)
  if table['seconds'].isna().all():
    table = table.drop(columns='seconds')
  if not failures.empty:
    table = _add_failures(table, failures['variant'].value_counts(sort=False))
  return rankings.sort(table, rankings.labels(runs, used, rules))


def _with_comparable_seconds(runs: pd.DataFrame) -> pd.DataFrame:
  """Hides seconds of virtual nodes, and all if the machines differ."""
  is_one = machines.is_one(runs)
  incomparable = [v or not is_one for v in sweep_page.virtual_runs(runs)]
  return runs.assign(seconds=runs['seconds'].mask(incomparable))


def _spread(variant: str, accuracy: pd.Series, level: float) -> dict[str, Any]:
  """Returns the columns of a variant's accuracies."""
  mean, deviation, half = intervals.interval(100 * accuracy.dropna(), level)
  return {
    'variant': variant,
    'seeds': int(accuracy.count()),
    'accuracy %': mean,
    'sd': deviation,
    intervals.heading(level): half,
  }


def _means(runs: pd.DataFrame, with_steps: bool) -> dict[str, float]:
  """Returns the columns that are means of a variant's runs."""
  means = runs.mean(numeric_only=True)
  further = [name for name in runs.columns if name.startswith(_SCORE)]
  row = {f'{n.removeprefix(_SCORE)} %': 100 * means[n] for n in further}
  for name, heading in _MEANS.items():
    if name in means and (with_steps or name != 'steps'):
      row[heading] = means[name]
  return row


def _add_failures(table: pd.DataFrame, counts: pd.Series) -> pd.DataFrame:
  """Adds the numbers of failed runs by variant to a summary."""
  missing = [name for name in counts.index if name not in set(table['variant'])]
  rows = pd.DataFrame({'variant': missing, 'seeds': 0})
  table = pd.concat([table, rows], ignore_index=True) if missing else table
  failed = table['variant'].map(counts).fillna(0).astype(int)
  table.insert(2, 'failed', failed)
  return table


def _chart(table: pd.DataFrame, by_step: pd.DataFrame) -> figure.Figure:
  """Plots the variants that have an accuracy."""
  return sweep_plot.chart(table.dropna(subset='accuracy %'), by_step)


def write(
  folder: str | os.PathLike[str],
  title: str,
  runs: pd.DataFrame,
  baselines: Mapping[str, str] | None = None,
  source: str | os.PathLike[str] | None = None,
  rules: sweep_rules.SweepRules = sweep_rules.DEFAULT,
) -> str:
  """Writes the summary as a table, Markdown, a plot and a page.

  Args:
    folder: output directory; created if missing.
    title: title of the page.
    runs: from `read`.
    baselines: maps variants to their baselines, as for `summary`.
    source: directory with curves and failures; default `folder`.
    rules: as for `summary`.

  Returns:
    The table, notes and the path of the page, as text. Equal runs give
    byte-identical files.

  Raises:
    errors.ConfigError: the tables in `source` or the baselines are invalid.
    errors.TrainingError: the files cannot be written.
  """
  source = source or folder
  failures = read_failures(source)
  found = summary(runs, baselines, failures, rules)
  by_step = read_curves(source, runs)
  tables.write(folder, 'sweep', found, _chart(found, by_step))
  page_path = os.path.join(folder, 'sweep.html')
  text = sweep_page.page(title, found, runs, by_step, failures, rules)
  notes = sweep_page.notes(runs, rules)
  with errors.explain_write_errors(os.fspath(folder)):
    markdown = sweep_markdown.text(found, notes)
    disk.write_text(os.path.join(folder, 'sweep.md'), markdown)
    disk.write_text(page_path, text)
  return f'{as_text(found, notes)}\npage: {page_path}'


def as_text(table: pd.DataFrame, notes: Sequence[str]) -> str:
  """Formats a summary and its notes for a terminal."""
  shown = table.to_string(index=False, float_format='{:.4g}'.format)
  return '\n'.join([shown, *notes])
