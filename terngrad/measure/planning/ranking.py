"""Which codes are equally fast within noise, and which of them to take.

A plan orders codes only if their steps differ by more than the timing's noise
and by more than `TOLERANCE`. Among codes that differ from the fastest by less
than `TOLERANCE`, a fixed rule decides. Noise never adds a code
to these: a plan on a busy machine would otherwise name a slower code than one
on a quiet machine.
"""

import math

import pandas as pd

from terngrad.measure.planning import accuracy
from terngrad.measure.planning import model

# Predictions have a median error of 6.9 % (experiments/plan_validation). All 13
# pairs of codes in wrong order there differed by at most 15 % in the plan.
TOLERANCE = 0.15
_EQUAL = '='


def equal_codes(table: pd.DataFrame) -> list[str]:
  """Lists the codes that are as fast as the fastest, within noise.

  A step may be longer than the shortest by `TOLERANCE`, or by the noise of both
  codes (`model.NOISE`) if that is more.

  Args:
    table: from `model.table`.

  Returns:
    Codes, the fastest first.
  """
  best = table.iloc[0]
  allowed = (table[model.NOISE] + best[model.NOISE]).clip(
    lower=TOLERANCE * best[model.STEP]
  )
  is_equal = table[model.STEP] - best[model.STEP] <= allowed
  return [*table[is_equal]['codec']]


def recommend(table: pd.DataFrame) -> str:
  """Returns the code to take: one within `TOLERANCE` of the fastest.

  The first of: the smallest loss of accuracy that the project's sweeps measured
  (codes that one of them lacks come last), float32, the fewest wrappers and
  options, the shortest text.
  """

  def order(text: str) -> tuple[float, bool, int, int, str]:
    loss = accuracy.largest_loss(text)
    rank = math.inf if loss is None else loss
    parts = sum(map(text.count, '+:,'))
    return rank, text != model.FLOAT32, parts, len(text), text

  return min(_close_codes(table), key=order)


def _close_codes(table: pd.DataFrame) -> list[str]:
  """Lists the codes within `TOLERANCE` of the fastest, the fastest first."""
  return equal_codes(table.assign(**{model.NOISE: 0.0}))


def with_accuracy(table: pd.DataFrame) -> pd.DataFrame:
  """Adds a mark of equal codes and the accuracy of `accuracy.SWEEPS`.

  Also replaces numbers of `model.LIMIT` that are no bandwidth by text: 'always'
  or 'never', and '' for float32.
  """
  equal = {*equal_codes(table)}
  found = table.assign(
    **{
      model.LIMIT: table[model.LIMIT].map(_limit_text),
      **{
        sweep.heading: [
          str(accuracy.find(text).get(name, '')) for text in table['codec']
        ]
        for name, sweep in accuracy.SWEEPS.items()
      },
    }
  )
  marks = [_EQUAL if text in equal else '' for text in table['codec']]
  found.insert(1, 'fastest', marks)
  return found


def _limit_text(limit: float) -> str:
  if math.isnan(limit):
    return ''
  if limit == 0:
    return 'never'
  return 'always' if math.isinf(limit) else f'{limit:.4g}'


def describe(table: pd.DataFrame) -> str:
  """Returns the sentence that names the code to take.

  Args:
    table: from `model.table`.
  """
  chosen = recommend(table)
  row = table.set_index('codec').loc[chosen]
  close = _close_codes(table)
  unsure = [text for text in equal_codes(table) if text not in close]
  reason = '' if chosen == model.FLOAT32 else ', the fastest'
  if others := [text for text in close if text != chosen]:
    reason = (
      f'. A tie within {TOLERANCE:.0%} with {", ".join(others)}: of these the '
      'code with the smallest loss of accuracy in two sweeps is named (their '
      'rates were not searched), then the simplest'
    )
  if unsure:
    reason += (
      f'. The times varied too much to tell whether {", ".join(unsure)} would '
      'be as fast: plan again when the machine is idle'
    )
  gain = f'{row["over float32"]:.2f} times as fast as float32'
  if chosen == model.FLOAT32:
    gain = 'which is float32: compression does not pay here'
  return (
    f'recommended: {chosen}, {row[model.STEP]:.3g} s per step, {gain}{reason}'
  )
