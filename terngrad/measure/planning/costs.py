"""Coding costs of this machine: from the cache, and timed where it has none."""

import os
import pathlib
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

from slim import spelling
from terngrad.codec.methods import registry
from terngrad.measure.planning import cache
from terngrad.measure.planning import coding
from terngrad.measure.planning import model

# Above this the rounds of a code differ so much that it is timed again.
_LARGE_SPREAD = 0.15
# Processes that wait for a core, per core.
_HIGH_LOAD = 0.5


class TimingOptions(NamedTuple):
  """How costs are found.

  Attributes:
    rounds: rounds of timing.
    most_seconds: as for `coding.measure_all`.
    reads: whether costs are read from the cache.
    writes: whether timed costs are stored in it.
  """

  rounds: int
  most_seconds: float
  reads: bool = True
  writes: bool = True


def find(
  texts: Sequence[str], options: TimingOptions, say: Callable[[str], None]
) -> dict[str, model.Coding]:
  """Returns the costs of codecs, and logs where they come from.

  Costs that vary much between the rounds are timed again by the next plan,
  which uses the shorter time: other programs only make coding slower. Costs of
  codes of other packages, whose versions are not known here, are not stored.

  Args:
    texts: codecs in the syntax of `--codec`.
    options: how costs are found.
    say: takes lines for the user.

  Raises:
    ValueError: a text names no method.
  """
  found: dict[str, model.Coding] = {}
  file: pathlib.Path | None = None
  if options.reads or options.writes:
    try:
      file = cache.path()
      found = cache.read(file) if options.reads else {}
    except (OSError, ValueError) as error:
      say(f'warning: the stored coding times are ignored: {file}: {error}')
  stored = {t: found[t] for t in texts if t in found}
  known = {t: cost for t, cost in stored.items() if not _varies(cost)}
  missing = [text for text in texts if text not in known]
  if known:
    say(f'{len(known)} coding times from {file} (--refresh times them again)')
  if not missing:
    return known
  timed = {
    text: min(cost, stored.get(text, cost), key=_total)
    if _varies(cost)
    else cost
    for text, cost in _measure(missing, options, say).items()
  }
  new = {text: cost for text, cost in timed.items() if _is_built_in(text)}
  if options.writes and file and new:
    try:
      cache.add(file, new)
    except OSError as error:
      say(f'warning: the coding times are not stored: {error}')
  return known | timed


def _varies(cost: model.Coding) -> bool:
  return cost.spread > _LARGE_SPREAD


def _total(cost: model.Coding) -> float:
  return cost.send + cost.receive


def _measure(
  texts: Sequence[str], options: TimingOptions, say: Callable[[str], None]
) -> dict[str, model.Coding]:
  """Times codecs; warns of other programs."""
  cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
  say(
    f'timing {len(texts)} codes on {cores} cores, in about '
    f'{options.most_seconds:g} s at most'
  )
  if load > _HIGH_LOAD * cores:
    say(
      f'warning: the load of this machine is {load:.1f} on {cores} cores; '
      'other programs make coding slower than it is'
    )
  timed = coding.measure_all(texts, options.rounds, options.most_seconds)
  varying = [
    f'{text} ±{cost.spread:.0%}'
    for text, cost in timed.items()
    if _varies(cost)
  ]
  if varying:
    say(
      f'warning: coding times vary between the rounds ({", ".join(varying)}; '
      'half the interquartile range). The next plan times these again and '
      'uses the shorter time; stop other programs before.'
    )
  return timed


def _is_built_in(text: str) -> bool:
  """Returns whether a codec and its wrappers belong to this package."""
  known = {
    *registry.CODECS,
    *registry.METHODS,
    *registry.ALIASES,
    *registry.WRAPPERS,
  }
  return all(spelling.split(part)[0] in known for part in text.split('+'))
