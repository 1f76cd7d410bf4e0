"""The table of steps, bytes and seconds until variants reach given scores."""

import collections
import math
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import pandas as pd

from terngrad.report.statistics import intervals
from terngrad.report.statistics import paired
from terngrad.report.targets import scores


class Variant(NamedTuple):
  """What a step of a variant costs.

  Attributes:
    megabytes: millions of bytes that a worker sends in a step.
    seconds: seconds of a step, by the heading of the network; NaN where they
      are not known.
  """

  megabytes: float
  seconds: Mapping[str, float]


# A run's points by (variant, seed).
Curves = Mapping[tuple[str, int], scores.Points]
STEPS, MEGABYTES = 'steps', 'MB sent by a worker'


def until(
  curves: Curves,
  variants: Mapping[str, Variant],
  targets: Iterable[float],
  score: scores.TargetScore,
) -> pd.DataFrame:
  """Computes what each variant needs to reach each target.

  Args:
    curves: the points of every run.
    variants: costs of a step.
    targets: scores to reach.
    score: the kind of the scores.

  Returns:
    One row for each target and variant, the fewest megabytes first: seeds that
    reached the target, of all; means over the seeds of steps, megabytes and
    seconds, NaN if a seed did not reach the target, and the half width of the
    95 % interval of the steps, NaN for one seed.
  """
  rows: list[dict[str, Any]] = []
  for target in targets:
    found = [
      {score.label: target, 'variant': name}
      | _needs(_steps(curves, name, target, score), costs)
      for name, costs in variants.items()
    ]
    rows += sorted(found, key=_order)
  return pd.DataFrame(rows)


def _steps(
  curves: Curves, variant: str, target: float, score: scores.TargetScore
) -> list[float]:
  return [
    scores.steps_until(points, target, score)
    for (name, _), points in curves.items()
    if name == variant
  ]


def _needs(steps: Sequence[float], costs: Variant) -> dict[str, Any]:
  reached = [count for count in steps if count < math.inf]
  mean = half = math.nan
  if len(reached) == len(steps):
    mean, _, half = intervals.interval(pd.Series(reached))
  return {
    'reached': f'{len(reached)} of {len(steps)}',
    STEPS: mean,
    '95 %': half,
    MEGABYTES: mean * costs.megabytes,
    **{name: mean * each for name, each in costs.seconds.items()},
  }


def _order(row: Mapping[str, Any]) -> tuple[bool, float]:
  return math.isnan(row[MEGABYTES]), row[MEGABYTES]


def at_the_end(
  curves: Curves, baselines: Mapping[str, str], score: scores.TargetScore
) -> pd.DataFrame:
  """Compares the last scores of the variants, the best first.

  Runs should have seen equally many examples then.

  Args:
    curves: the points of every run.
    baselines: maps variants to their baselines.
    score: the kind of the scores.

  Returns:
    One row for each variant: steps, seeds, if runs failed their number, the
    mean last score, and the columns of `statistics.paired.compare` if it and
    its baseline lost no run.
  """
  failed = collections.Counter(
    name
    for (name, _), points in curves.items()
    if not points or not math.isfinite(points[-1][1])
  )
  last = pd.DataFrame(
    [
      {'variant': name, 'seed': seed, STEPS: points[-1][0], 'score': value}
      for (name, seed), points in curves.items()
      if points and math.isfinite(value := points[-1][1])
    ]
  )
  if last.empty:
    return last
  by_seed = last.pivot(index='seed', columns='variant', values='score')
  used = {
    variant: baseline
    for variant, baseline in baselines.items()
    if variant in by_seed and baseline in by_seed
  }
  used = paired.without_lost(used, failed)
  compared = paired.compare(by_seed, used) if used else {}
  table = pd.DataFrame(
    [
      {
        'variant': name,
        STEPS: int(runs[STEPS].max()),
        'seeds': len(runs),
        **({'failed': failed[str(name)]} if failed else {}),
        score.label: runs['score'].mean(),
        **compared.get(str(name), {}),
      }
      for name, runs in last.groupby('variant', sort=False)
    ]
  )
  return table.sort_values(
    score.label, ascending=score.is_falling, kind='stable'
  )
