"""Many runs beside each other: variants, seeds, and what differs surely.

Every figure has its spread over the seeds. A variant is compared with the
baseline seed by seed, so that what a seed does to both falls out.
"""

import html
import math
import os

import pandas as pd

from slim.datasets.records import disk
from terngrad import errors
from terngrad.measure import tables
from terngrad.report import curves
from terngrad.report import html_page
from terngrad.report import sweep_plot

# Beside the table of runs: a row an epoch of a run, where epochs were scored.
CURVES = 'curves.csv'
# Student's t for 95 %, two-sided, by degrees of freedom from 1; 1.96 beyond.
# Student, The Probable Error of a Mean, Biometrika 6 (1908), as tabulated.
_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_COLUMNS = {
  'variant',
  'seed',
  'steps',
  'accuracy',
  'bits_per_element',
  'seconds',
}
_FLOATS = ('accuracy', 'bits_per_element', 'loss', 'seconds')
# What may look like a number, as the commit 076e364 does.
_TEXTS = ('variant', 'commit')
# Before the names of further scores, see `terngrad.sweep.definition`.
_SCORE = 'accuracy_'
_STYLE = """
td, th { text-align: right; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; }
th { cursor: pointer; }
"""
# A click on a heading sorts by its column, by numbers where there are some.
_SCRIPT = """
for (const table of document.querySelectorAll('table'))
  table.querySelectorAll('th').forEach((heading, column) =>
    heading.addEventListener('click', () => {
      const up = heading.dataset.up !== 'true';
      heading.dataset.up = up;
      const key = row => {
        const text = row.cells[column].textContent;
        const number = parseFloat(text);
        return isNaN(number) ? text : number;
      };
      const rows = [...table.tBodies[0].rows].sort((a, b) =>
        (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (up ? 1 : -1));
      table.tBodies[0].append(...rows);
    }));
"""


def exact(path):
  """What stands in a results.csv, to the last character, as a frame of pandas.

  pandas 2 reads floats faster than exactly, and pandas 3 is not to be asked.
  """
  names = pd.read_csv(path, nrows=0).columns
  floats = [n for n in names if n in _FLOATS or n.startswith(_SCORE)]
  readers = dict.fromkeys(floats, _number) | dict.fromkeys(_TEXTS, str)
  return pd.read_csv(path, converters=readers)


def _number(text):
  """A float; NaN where a run was not scored so."""
  return float(text or math.nan)


def read(path):
  """The runs of a results.csv, as `terngrad sweep` writes it.

  Args:
    path: of the file.

  Returns:
    `pandas.DataFrame`.

  Raises:
    errors.ConfigError: there is no such table, or it has other columns.
  """
  try:
    runs = exact(path)
  except (OSError, ValueError) as error:
    raise errors.ConfigError(
      f'results: expected a readable results.csv, received "{error}". Run '
      '`terngrad sweep` first.'
    ) from error
  missing = sorted(_COLUMNS - {*runs.columns})
  if missing or not len(runs):
    raise errors.ConfigError(
      f'{path}: expected a row a run with {", ".join(sorted(_COLUMNS))}, '
      f'received {len(runs)} rows without {", ".join(missing) or "none"}. Give '
      'the results.csv of an experiment.'
    )
  return runs


def read_curves(folder):
  """Accuracies by step of a sweep's runs.

  Args:
    folder: path of its results.

  Returns:
    `pandas.DataFrame` of index step and a column a variant: accuracy in % after
    an epoch, mean over the seeds, with NaN where a variant has no epoch's end.
    Empty where no epoch was scored.
  """
  path = os.path.join(folder, CURVES)
  if not os.path.exists(path):
    return pd.DataFrame()
  rows = exact(path)
  rows['accuracy'] *= 100
  return rows.pivot_table(index='step', columns='variant', values='accuracy')


def summary(runs, baseline=''):
  """A row a variant, the most accurate first.

  Args:
    runs: from `read`.
    baseline: the variant that others are compared with; '' for none.

  Returns:
    `pandas.DataFrame`: accuracy in %, mean over the seeds, standard deviation
    and half width of the 95 % confidence interval of the mean (NaN of one
    seed); the mean difference to the baseline over the seeds that both have, in
    points, and its half width; further scores in %, bits an element and
    seconds, means, and modelled seconds where runs have them; steps where runs
    differ in them.

  Raises:
    errors.ConfigError: no run is of the baseline.
  """
  if baseline and baseline not in set(runs['variant']):
    known = ', '.join(sorted(set(runs['variant'])))
    raise errors.ConfigError(
      f'baseline: expected a variant of {known}, received {baseline!r}.'
    )
  accuracy = runs.pivot_table(
    index='seed', columns='variant', values='accuracy', aggfunc='last'
  )
  differ = runs['steps'].nunique() > 1
  rows = []
  for variant, own in runs.groupby('variant', sort=False):
    mean, deviation, half = interval(100 * accuracy[variant].dropna())
    row = {
      'variant': variant,
      'seeds': int(accuracy[variant].count()),
      'accuracy %': mean,
      'sd': deviation,
      '95 %': half,
    }
    if baseline:
      pairs = 100 * (accuracy[variant] - accuracy[baseline]).dropna()
      difference, _, half = interval(pairs)
      row |= {f'to {baseline}': difference, 'its 95 %': half}
    row |= {
      f'{name.removeprefix(_SCORE)} %': 100 * own[name].mean()
      for name in runs.columns
      if name.startswith(_SCORE)
    }
    if differ:
      row['steps'] = own['steps'].mean()
    row |= {
      'bits/element': own['bits_per_element'].mean(),
      'seconds': own['seconds'].mean(),
    }
    if sweep_plot.MODELLED in own:
      row[sweep_plot.MODELLED] = own[sweep_plot.MODELLED].mean()
    rows.append(row)
  table = pd.DataFrame(rows)
  return table.sort_values('accuracy %', ascending=False, kind='stable')


def interval(values):
  """(mean, standard deviation, half width of the 95 % interval of the mean).

  To 9 decimals: what is 0 but for the last bits of decimal fractions is 0.
  """
  count = len(values)
  mean = float(values.mean()) if count else math.nan
  if count < 2:
    return mean, math.nan, math.nan
  deviation = float(values.std(ddof=1))
  quantile = _T[count - 2] if count - 2 < len(_T) else 1.96
  found = mean, deviation, quantile * deviation / math.sqrt(count)
  return tuple(round(number, 9) for number in found)


def markdown(table):
  """The table as Markdown."""
  rows = [_cells(row) for _, row in table.iterrows()]
  lines = [list(table.columns), ['---'] * len(table.columns), *rows]
  return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def page(title, table, runs, by_step):
  """One HTML file that needs nothing else: plot, summary, all runs.

  Args:
    title: of the page.
    table: from `summary`.
    runs: from `read`.
    by_step: from `read_curves`.

  Returns:
    str.
  """
  return html_page.document(
    title,
    [
      '<p>Means over the seeds; differences are of pairs of the same seed. '
      'A click on a heading sorts.</p>',
      _html(table),
      curves.element(sweep_plot.chart(table, by_step), title),
      '<h2>All runs</h2>',
      _html(runs),
      f'<script>{_SCRIPT}</script>',
    ],
    _STYLE,
  )


def write(folder, title, runs, baseline=''):
  """Writes the summary as a table, Markdown, a plot and a page.

  Args:
    folder: path; made where it is not.
    title: of the page.
    runs: from `read`.
    baseline: see `summary`.

  Returns:
    The table and where the page is, for people. The files of equal runs are
    equal to the byte.
  """
  found = summary(runs, baseline)
  by_step = read_curves(folder)
  tables.write(folder, 'sweep', found, sweep_plot.chart(found, by_step))
  page_path = os.path.join(folder, 'sweep.html')
  disk.write_text(os.path.join(folder, 'sweep.md'), markdown(found))
  disk.write_text(page_path, page(title, found, runs, by_step))
  shown = found.to_string(index=False, float_format='{:.4g}'.format)
  return f'{shown}\npage: {page_path}'


def _html(table):
  heads = ''.join(f'<th>{html.escape(str(c))}</th>' for c in table.columns)
  rows = ''.join(
    f'<tr>{"".join(f"<td>{html.escape(c)}</td>" for c in _cells(row))}</tr>\n'
    for _, row in table.iterrows()
  )
  return (
    f'<table><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table>'
  )


def _cells(row):
  return [_shown(value) for value in row]


def _shown(value):
  if not isinstance(value, float):
    return str(value)
  return '' if math.isnan(value) else f'{value:.4g}'
