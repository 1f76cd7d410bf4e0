"""The HTML page of a sweep: plots, summary, all runs, failures."""

import math
from typing import Any

import pandas as pd

from terngrad.report import curves
from terngrad.report import sweep_plot
from terngrad.report.pages import html_page
from terngrad.report.pages import interval_plot
from terngrad.report.pages import scatter_plot
from terngrad.report.statistics import intervals
from terngrad.report.statistics import machines
from terngrad.report.statistics import paired
from terngrad.report.statistics import rankings
from terngrad.report.statistics import sweep_flags
from terngrad.report.statistics import sweep_rules

_MOST_POINTS = 1600
_SEARCHED = (
  'The learning rates were searched for each variant, so variants with '
  'different ones are ranked together.'
)
# Columns of a run's versions and machine, from `terngrad.sweep.results`.
PROVENANCE = (
  'commit',
  'versions',
  'machine',
  'processor',
  'instructions',
  'switches',
  'tensorflow_build',
)

_PAGE = """\
{% extends 'base' %}
{% from 'tables' import table %}
{% block body %}
<div class="plots">
{% for plot in plots %}
{{ plot }}
{% endfor %}
</div>
<h2>Summary</h2>
{{ table(*summary) }}
<ul class="soft">
<li><b>accuracy %</b>: mean over the seeds. <b>sd</b>: standard deviation over
the seeds, in percentage points.</li>
<li><b>{{ interval }}</b>: half width of the {{ interval }} confidence interval
of the mean (Student's t). It shows how much other seeds would change the mean.
One seed has none.</li>
{% if baseline %}
<li><b>{{ baseline }}</b>: mean difference to the baseline in percentage points,
of runs with the same seed; <b>its {{ interval }}</b>: half width of its
interval. If the interval contains 0, the seeds show no difference.</li>
<li><b>pooled {{ interval }}</b>: the same with the deviation of differences
estimated from all variants that have this baseline, as if all spread alike.
<b>Dunnett p</b>: probability of so large a ratio of difference and pooled
deviation in any of these variants if none differed (Dunnett's procedure, seeds
as blocks). 0 is below 0.0005. Of many variants compared with the same runs,
some differ by chance: trust those below 0.05.</li>
{% endif %}
{% if marked %}
<li><b>*</b>: all {{ 'differences' if baseline else 'values' }} are equal, so
the interval has no width. With few seeds this is chance, and no sign of
certainty. Plots show such means as circles.</li>
{% endif %}
{% if examples %}
<li><b>{{ test_set }}</b>: half width of the {{ interval }} interval because the
test set is finite, {{ normal }} sqrt(a (1 - a) / {{ examples }}). All
accuracies a are multiples of 1/{{ examples }}. Runs share the test set, so
differences have a smaller error than this, but seeds do not make it
smaller.</li>
{% endif %}
{% if virtual %}
<li>Virtual nodes have no seconds: they share one machine, so their seconds
are not those of as many workers. results.csv has them.</li>
{% elif not equal_machines %}
<li>There are no seconds: the runs are of several machines, or it is not known
that they are of one. results.csv has them.</li>
{% endif %}
{% if several %}
<li>Runs with other numbers of steps{% if not searched %} or other learning
rates{% endif %} are in separate rankings.</li>
{% endif %}
{% for note in notes %}
<li>{{ note }}</li>
{% endfor %}
{% if opened %}
<li>Circles are variants with one seed
{%- if failures %}, or of which some runs failed (these are not compared: a mean
of the others is no mean of the setting){% endif %}.</li>
{% endif %}
</ul>
<details><summary>All runs and their flags</summary>
{% if common %}
<div class="wide"><table>
{% for name, value in common.items() %}
<tr><th>{{ name }}, all runs</th><td>{{ value }}</td></tr>
{% endfor %}
</table></div>
{% endif %}
{{ table(*runs) }}
</details>
{% if failures %}
<h2>Failed runs</h2>
{{ table(*failures) }}
{% endif %}
{% endblock %}
"""


def notes(
  runs: pd.DataFrame, rules: sweep_rules.SweepRules = sweep_rules.DEFAULT
) -> list[str]:
  """Returns what a reader of the summary must know of its runs."""
  searched = _SEARCHED if rules.has_searched_rates else ''
  return [note for note in (searched, machines.note(runs)) if note]


def marked(table: pd.DataFrame) -> pd.DataFrame:
  """Finds intervals without width, whose values are all equal.

  Args:
    table: from `sweep.summary`.

  Returns:
    bool for each cell of `table`. The baseline's difference to itself is False.
  """
  found = pd.DataFrame(False, index=table.index, columns=table.columns)
  heading = intervals.heading(intervals.level_of(table))
  found[heading] = table[heading] == 0
  if (column := difference_column(table)) is None:
    return found
  named = column.removeprefix('to ')
  baseline = table['baseline'] if 'baseline' in table else named
  single = paired.SINGLE + heading
  found[single] = (table[single] == 0) & (table['variant'] != baseline)
  return found


def difference_column(table: pd.DataFrame) -> str | None:
  """Returns the name of the column of differences, or None without one."""
  single = paired.SINGLE + intervals.heading(intervals.level_of(table))
  if single not in table:
    return None
  return str(table.columns[list(table.columns).index(single) - 1])


def page(
  title: str,
  table: pd.DataFrame,
  runs: pd.DataFrame,
  by_step: pd.DataFrame,
  failures: pd.DataFrame,
  rules: sweep_rules.SweepRules = sweep_rules.DEFAULT,
) -> str:
  """Renders the page; equal arguments give equal text.

  Args:
    title: title of the page.
    table: from `sweep.summary`.
    runs: from `sweep.read`.
    by_step: from `sweep.read_curves`.
    failures: from `sweep.read_failures`.
    rules: those of the summary.
  """
  marks = marked(table)
  level = intervals.level_of(table)
  heading = intervals.heading(level)
  test_set = f'test set {heading}'
  examples = intervals.count_examples(list(runs['accuracy']))
  shown = table.copy()
  if examples:
    at = list(table.columns).index(heading) + 1
    shown.insert(at, test_set, _sampling_errors(table, examples, level))
  virtual = virtual_runs(runs)
  common, others = _divide(
    runs.drop(columns='seconds') if all(virtual) else runs
  )
  return html_page.render(
    _PAGE,
    title,
    plots=_plots(_finite(table).dropna(subset='accuracy %'), _finite(by_step)),
    summary=(shown.columns, texts(shown, marks)),
    baseline=difference_column(table),
    marked=bool(marks.to_numpy().any()),
    interval=heading,
    normal=f'{intervals.normal(level):.3g}',
    test_set=test_set,
    examples=examples,
    virtual=any(virtual),
    equal_machines=machines.is_one(runs),
    several=rankings.COLUMN in table,
    searched=rules.has_searched_rates,
    notes=notes(runs, rules),
    opened=any(sweep_plot.is_open(table)),
    common=common,
    runs=(others.columns, texts(others)),
    failures=() if failures.empty else (failures.columns, texts(failures)),
  )


def virtual_runs(runs: pd.DataFrame) -> list[bool]:
  """Returns for each run whether several of its nodes shared a device."""
  if 'flags' not in runs:
    return [False] * len(runs)
  return [sweep_flags.is_virtual(str(flags)) for flags in runs['flags']]


def texts(
  table: pd.DataFrame, marks: pd.DataFrame | None = None
) -> list[list[str]]:
  """Formats the cells of a table as text, row by row.

  Args:
    table: any table.
    marks: True for cells that get a star, from `marked`; columns may lack.
  """
  rows = [[_format(value) for value in row] for _, row in table.iterrows()]
  if marks is None:
    return rows
  for column in marks.columns:
    at = list(table.columns).index(column)
    for row, is_marked in zip(rows, marks[column], strict=True):
      row[at] += ' *' if is_marked else ''
  return rows


def _format(value: Any) -> str:
  if not isinstance(value, float):
    return str(value)
  if math.isnan(value):
    return ''
  return f'{value:.4g}' if abs(value) < 1e4 else f'{value:.0f}'


def _sampling_errors(
  table: pd.DataFrame, examples: int, level: float
) -> list[float]:
  return [
    100 * intervals.sampling_error(accuracy / 100, examples, level)
    if not math.isnan(accuracy)
    else math.nan
    for accuracy in table['accuracy %']
  ]


def _divide(runs: pd.DataFrame) -> tuple[dict[str, str], pd.DataFrame]:
  """Divides the runs' texts: those of all, and a table of the others."""
  common, others = {}, runs.copy()
  if 'flags' in runs:
    common['flags'], flags = sweep_flags.divide(list(runs['flags'].map(str)))
    others['flags'] = flags
  for column in PROVENANCE:
    if column in runs and runs[column].nunique(dropna=False) == 1:
      common[column] = _format(runs[column].iloc[0])
      others = others.drop(columns=column)
  return {name: value for name, value in common.items() if value}, others


def _finite(table: pd.DataFrame) -> pd.DataFrame:
  """Replaces numbers that no axis can show by NaN."""
  numbers = table.select_dtypes('number').columns
  return table.assign(
    **{name: table[name].where(table[name].abs() < 1e300) for name in numbers}
  )


def _plots(
  table: pd.DataFrame, by_step: pd.DataFrame
) -> list[html_page.Markup]:
  """Draws curves over steps, means by variant, and means over other columns."""
  plots = []
  found = [
    curves.Curve(name, list(by_step[name].dropna().items()), number)
    for number, name in enumerate(table['variant'])
    if name in by_step
  ]
  if found:
    drawn = curves.Plot('accuracy after an epoch, mean over seeds, %', found)
    most = max(16, _MOST_POINTS // len(found))
    plots.append(curves.svg(drawn, most, by_run=True, whole=True))
  for name, part in rankings.split(table).items():
    if len(part):
      plots.append(_by_variant(name, part))
  heading = intervals.heading(intervals.level_of(table))
  for panel in sweep_plot.panels(table):
    columns = panel.column, 'accuracy %', heading
    points = [
      scatter_plot.Named(*row)
      for row in zip(
        sweep_plot.names(panel.rows),
        *(panel.rows[name] for name in columns),
        sweep_plot.is_open(panel.rows),
        strict=True,
      )
    ]
    title = ', '.join(filter(None, ['accuracy, %', panel.ranking]))
    logarithmic = sweep_plot.OVER[panel.column]
    plots.append(scatter_plot.draw(title, panel.column, points, logarithmic))
  return plots


def _by_variant(ranking: str, table: pd.DataFrame) -> html_page.Markup:
  """Draws the means of a ranking, and the differences to its baseline."""
  marks = marked(table)
  heading = intervals.heading(intervals.level_of(table))
  opened = pd.Series(sweep_plot.is_open(table), index=table.index)
  panels = [
    interval_plot.Panel(
      'accuracy, %',
      table['accuracy %'],
      table[heading],
      marks[heading] | opened,
    )
  ]
  column = difference_column(table)
  if column and table[column].notna().any():
    panels.append(
      interval_plot.Panel(
        f'{column}, points',
        table[column],
        table[paired.SINGLE + heading],
        marks[paired.SINGLE + heading] | opened,
        with_zero=True,
      )
    )
  title = f'means over seeds with {heading} intervals'
  title = ', '.join(filter(None, [title, ranking]))
  return interval_plot.draw(title, sweep_plot.names(table), panels)
