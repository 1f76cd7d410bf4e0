"""Seconds until the first step ends, each kind of step in a new process.

The seconds begin when TensorFlow and the modules of the trainers are imported,
and include building the model, tracing and compiling. With a cold cache XLA
compiles; with a warm one it loads what the process before compiled.
"""

import itertools
import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from terngrad import errors
from terngrad.children import captured
from terngrad.children import endings
from terngrad.children import stderr_copy
from terngrad.machine import xla_cache
from terngrad.measure import step_table

COLD, WARM = 'cold', 'warm'
_MARK = 'first step '
_FIRST, _BUILD = 'until the first step ends, s', 'building, s'


class FirstStep(NamedTuple):
  """Seconds of a process.

  Attributes:
    build: until the model and its variables are built.
    total: until the first step has ended.
  """

  build: float
  total: float

  def line(self) -> str:
    """Formats the line that `read` finds in the output of a process."""
    return f'{_MARK}{json.dumps(self)}'


def time_here(build: Callable[[], step_table.Step]) -> FirstStep:
  """Builds a step and takes it, in this process."""
  start = time.perf_counter()
  step = build()
  built = time.perf_counter()
  step_table.repeat(step, 1)
  return FirstStep(built - start, time.perf_counter() - start)


def read(output: str) -> FirstStep | None:
  """Finds the seconds in the output of a process; None if there are none."""
  for line in output.splitlines():
    if line.startswith(_MARK):
      return FirstStep(*json.loads(line.removeprefix(_MARK)))
  return None


def measure(
  commands: Mapping[str, Sequence[str]],
  rounds: int,
  say: Callable[[str], None],
) -> pd.DataFrame:
  """Runs all kinds of steps, each with a cold cache and then with a warm one.

  Args:
    commands: for each kind the arguments of `terngrad`; the process prints
      `FirstStep.line`.
    rounds: how often each kind is measured; the kinds take turns.
    say: takes a line for each process as soon as it has ended.

  Returns:
    For each kind and cache the medians, and the ratios to plain Keras with and
    without XLA, with the same cache and in the same round.

  Raises:
    errors.TrainingError: a process failed.
  """
  rows = []
  for number, kind in itertools.product(range(rounds), commands):
    with tempfile.TemporaryDirectory() as folder:
      for cache in (COLD, WARM):
        found = _run(kind, commands[kind], folder)
        rows.append((number, kind, cache, *found))
        say(f'{kind}, {cache}: {found.total:.1f} s')
  return table(rows)


def table(rows: Sequence[tuple[int, str, str, float, float]]) -> pd.DataFrame:
  """Makes the table of `measure`.

  Args:
    rows: (round, kind, cache, seconds of building, seconds in all).
  """
  names = ['round', 'kind', 'cache', _BUILD, _FIRST]
  found = pd.DataFrame(rows, columns=names)
  by_round = found.set_index(names[:3])
  for base in step_table.KERAS_KINDS:
    if base in found['kind'].values:
      of_base = by_round[_FIRST].xs(base, level='kind')
      by_round[f'to {base}'] = (
        by_round[_FIRST]
        / of_base.reindex(by_round.index.droplevel('kind')).to_numpy()
      )
  medians = by_round.groupby(level=['kind', 'cache'], sort=False).median()
  return medians.round(2)


def _run(kind: str, words: Sequence[str], folder: str) -> FirstStep:
  """Runs one kind in a new process that keeps compiled code in a folder."""
  given = os.environ.get(xla_cache.VARIABLE, '')
  flags = re.sub(rf'{xla_cache.FLAG}\S*', '', given)
  own = f'{xla_cache.FLAG}_directory={folder}'
  code, output = captured.run(
    words, os.environ | {xla_cache.VARIABLE: f'{flags} {own}'.strip()}
  )
  found = read(output)
  if code or found is None:
    lines = stderr_copy.last_lines(output)
    raise errors.TrainingError(endings.describe(kind, code, lines))
  return found
