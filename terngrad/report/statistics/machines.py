"""On how many machines the runs of a sweep were made."""

import pandas as pd

_THEN = '; then '
_UNKNOWN = 'unknown'
# Columns of a run's machine, from `terngrad.sweep.results`: equal ones have
# comparable seconds, and round alike.
_SPEED = ('machine', 'processor', 'switches')
_ROUNDING = ('processor', 'instructions', 'switches')


def add_start(before: dict[str, str], now: dict[str, str]) -> dict[str, str]:
  """Returns the columns of a run that another process or machine continues.

  Args:
    before: the columns at the start or at the last continuation; of older
      versions {}.
    now: the columns of the process that continues the run.

  Returns:
    The columns of `now`. Those that differ hold both texts, as 'A; then B'.
  """
  found = {}
  for name, text in now.items():
    earlier = before.get(name, _UNKNOWN)
    is_equal = earlier.split(_THEN)[-1] == text
    found[name] = earlier if is_equal else f'{earlier}{_THEN}{text}'
  return found


def is_one(runs: pd.DataFrame) -> bool:
  """Returns whether all runs name the same machine, processor and switches."""
  return all(name in runs for name in _SPEED) and not _differing(runs, _SPEED)


def note(runs: pd.DataFrame) -> str:
  """Returns a warning if runs may round differently, or ''.

  Tables of older versions, which lack the columns, give none.
  """
  if differing := _differing(runs, _ROUNDING):
    return (
      f'Not all runs are known to have the same {", ".join(differing)} '
      '(results.csv has these columns). Between such runs the last digits of '
      'sums differ, and with them accuracies: means and differences over them '
      'do not show the effects of seeds and variants alone.'
    )
  return ''


def _differing(runs: pd.DataFrame, names: tuple[str, ...]) -> list[str]:
  """Returns which of the present columns do not have one known value."""
  return [
    name
    for name in names
    if name in runs
    and (
      runs[name].nunique(dropna=False) > 1
      or runs[name].isna().any()
      or _THEN in str(runs[name].iloc[0])
    )
  ]
