"""Which variants of a sweep are ranked together, and what their runs share.

Runs of different numbers of steps, or with different learning rates, answer
different questions, so a list from best to worst must not mix them.
"""

from collections.abc import Mapping

import pandas as pd

from terngrad.report.statistics import sweep_flags
from terngrad.report.statistics import sweep_rules

COLUMN = 'ranking'
_UNFINISHED = 'no finished run'


def per_step(runs: pd.DataFrame) -> pd.DataFrame:
  """Counts local steps as steps, and bits per element by such steps.

  Args:
    runs: from `sweep.read`. A row counts exchanges, and the bits of one.

  Returns:
    The same rows; those of runs without local steps are unchanged.
  """
  local = _local_steps(runs)
  return runs.assign(
    steps=runs['steps'] * local['steps'] // local['parts'],
    bits_per_element=runs['bits_per_element'] / local['steps'],
  )


def curves_per_step(curves: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
  """Counts local steps as steps in the rows of curves.csv.

  Args:
    curves: from `sweep.read_all_curves`; not empty.
    runs: from `sweep.read`. Other variants are taken to have no local steps.
  """
  first = runs.drop_duplicates('variant')
  local = _local_steps(first).set_index(first['variant'])
  local = local.reindex(curves['variant'], fill_value=1).set_index(curves.index)
  return curves.assign(step=curves['step'] * local['steps'] // local['parts'])


def _local_steps(runs: pd.DataFrame) -> pd.DataFrame:
  """Returns what `sweep_flags.local_steps` finds: `steps` and `parts`."""
  flags = runs['flags'] if 'flags' in runs else [''] * len(runs)
  counts = [sweep_flags.local_steps(str(text)) for text in flags]
  return pd.DataFrame(counts, index=runs.index, columns=['steps', 'parts'])


def labels(
  runs: pd.DataFrame,
  baselines: Mapping[str, str],
  rules: sweep_rules.SweepRules = sweep_rules.DEFAULT,
) -> dict[str, str]:
  """Names the ranking of each variant, in the order of the runs.

  Variants share a ranking if they have equal steps, equal learning rates (the
  value and its schedule), and the same baseline, or baseline of the baseline.
  Searched learning rates may differ.

  Args:
    runs: from `per_step`.
    baselines: maps variants to their baselines.
    rules: `has_searched_rates` is read.

  Returns:
    The ranking by variant, such as '8000 steps, --initial_learning_rate=0.01';
    the parts that all variants share are left out.
  """
  first = runs.drop_duplicates('variant')
  keys = {}
  for row in first.to_dict('records'):
    name = str(row['variant'])
    flags = '' if rules.has_searched_rates else str(row.get('flags', ''))
    rates = sweep_flags.rates(flags)
    steps = f'{row["steps"]:.0f} steps'
    root = _root(name, baselines)
    keys[name] = steps, rates, f'baseline {root}' if root else ''
  differ = [len(set(parts)) > 1 for parts in zip(*keys.values(), strict=True)]
  # A baseline separates nothing if it follows from steps and rates.
  if len({key[:2] for key in keys.values()}) == len({*keys.values()}):
    differ[2] = False
  found = {}
  for name, (steps, rates, baseline) in keys.items():
    parts = steps, _shown(rates, keys), baseline
    shown = (p for p, d in zip(parts, differ, strict=True) if d and p)
    found[name] = ', '.join(shown)
  return found


def _shown(rates: str, keys: Mapping[str, tuple[str, str, str]]) -> str:
  """Leaves out the schedule's flags that all variants share."""
  shared = set.intersection(*(set(key[1].split()) for key in keys.values()))
  words = rates.split()
  kept = [w for w in words if w not in shared or '_rate=' in w]
  return ' '.join(kept)


def _root(variant: str, baselines: Mapping[str, str]) -> str:
  """Follows baselines to the one that has no other; '' without a baseline."""
  if variant not in {*baselines, *baselines.values()}:
    return ''
  seen = {variant}
  while (above := baselines.get(variant, variant)) not in seen:
    seen.add(above)
    variant = above
  return variant


def sort(table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
  """Sorts a summary by ranking, then by accuracy, the best first.

  Args:
    table: the summary.
    names: from `labels`; variants that it lacks are last.

  Returns:
    The summary, with the column `COLUMN` if there are several rankings.
  """
  order = [*dict.fromkeys(names.values())]
  found = table['variant'].map(names)
  table = table.sort_values('accuracy %', ascending=False, kind='stable')
  if len(order) < 2:
    return table
  table.insert(1, COLUMN, found.fillna(_UNFINISHED))
  place = table[COLUMN].map({name: i for i, name in enumerate(order)})
  return table.iloc[place.fillna(len(order)).argsort(kind='stable')]


def split(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
  """Splits a sorted summary into its rankings; '' if there is only one."""
  if COLUMN not in table:
    return {'': table}
  groups = table.groupby(COLUMN, sort=False)
  return {str(name): rows.drop(columns=COLUMN) for name, rows in groups}
