"""Comparison of codecs: time relative to a memory copy, and quality."""

import functools
import math
import statistics
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib import figure

from slim.nets import factory as nets
from terngrad import errors
from terngrad import native
from terngrad.codec.methods import registry
from terngrad.measure import codecs as measures
from terngrad.measure import gradient_codecs
from terngrad.measure import quality as measured_quality
from terngrad.measure import rivals
from terngrad.measure import timing
from terngrad.measure import turns
from terngrad.reduce import bucketing
from terngrad.reduce import gradients

# A job repeats its work until it has processed this many elements.
_ELEMENTS_A_JOB = 2**27
_MOST_REPEATS = 100
# Limits the draws: more draws add no information for large gradients.
_DRAWN_ELEMENTS = 2**23
COPY = ('copy',)
# The column that says why a row has no numbers.
NOTE = 'note'
_UPDATES = ('update', 'fused_update')
WORKS = ('probe', 'encode', 'decode', 'decode_sum', 'finish', *_UPDATES)

Shapes = list[tuple[int, ...]]
Row = dict[str, str | float]
# A code and its implementation: ('topk', 'native').
_Kind = tuple[str, str]


def check(texts: Sequence[str]) -> None:
  """Refuses texts that name no method, in the syntax of `--codec`.

  Raises:
    errors.ConfigError: a text names no method.
  """
  with errors.as_config_error():
    for text in texts:
      registry.method(text, measures.WORKERS)


def cases(sizes: Sequence[str], names: Sequence[str]) -> dict[str, Shapes]:
  """Returns the gradient shapes to measure.

  Args:
    sizes: numbers of elements of single gradients, such as '1e6'.
    names: names of nets whose variables' shapes are used.

  Returns:
    For each case's name, the shapes of a list of gradients.

  Raises:
    errors.ConfigError: a size is not a whole number >= 1.
    slim.errors.UnknownNameError: there is no such net.
  """
  found: dict[str, Shapes] = {}
  for text in sizes:
    try:
      size = float(text)
    except ValueError:
      size = 0.0  # Refused below.
    if size < 1 or size % 1:
      raise errors.ConfigError(
        f'sizes: expected whole numbers >= 1, received {text!r}. An example is '
        '1e6.'
      )
    found[f'{int(size):.3g}'] = [(int(size),)]
  for name in names:
    model = nets.build(name, num_classes=10)
    found[name] = [tuple(v.shape) for v in model.trainable_variables]
  return found


def measure(
  text: str,
  name: str,
  shapes: Shapes,
  rounds: int,
  advance: Callable[[], object] = lambda: None,
  budget: turns.Budget | None = None,
  cases_left: int = 1,
) -> Iterator[Row]:
  """Measures a method on one list of gradients, in turns with memory copies.

  A method with native kernels is measured with them and then without them. Work
  that takes long is timed in fewer rounds, see `turns`.

  Args:
    text: the method.
    name: name of the case.
    shapes: shapes of the gradients, which are Gaussian.
    rounds: rounds of timing; the median is reported.
    advance: called `rounds + 1` times for each implementation that is measured.
    budget: the seconds of this method; None has no limit.
    cases_left: number of cases that share these seconds, with this one.

  Yields:
    A row for each implementation, as soon as it is measured. A row without
    numbers has a `NOTE`: the budget had too few seconds left.
  """
  budget = budget or turns.Budget()
  size = elements(shapes)
  kinds = _kinds(text, shapes)
  quality: dict[str, float] = {}
  for number, (kind, codec) in enumerate(kinds.items()):
    row: Row = {'gradient': name, 'codec': kind[0], 'kind': kind[1]}
    end = budget.end(cases_left * len(kinds) - number)
    try:
      with budget.piece(kind[1], size) as piece:
        grown = 0.0
        # All implementations give the same words and means, to the bit.
        if not quality:
          quality, grown = _quality(text, shapes, codec)
        works = _planned(codec, kind, shapes, rounds, piece)
        piece.prepared(works.values(), grown)
        advance()
        seconds = _take(works, size, rounds, advance, end)
    except turns.OutOfBudgetError:
      yield row | note(budget)
      if quality:
        continue
      # What the first implementation cannot afford, no other can.
      yield from (
        row | {'kind': kind} | note(budget) for _, kind in [*kinds][1:]
      )
      return
    yield {**row, **speeds(seconds, kind, size), **quality}


def note(budget: turns.Budget) -> Row:
  """Returns the column of a row that was not measured."""
  return {NOTE: f'not measured: would exceed --max_seconds={budget.seconds:g}'}


def _planned(
  codec: gradients.GradientCodec,
  kind: _Kind,
  shapes: Shapes,
  rounds: int,
  piece: turns.TimedPiece,
) -> dict[tuple[str, ...], turns.Work]:
  """Returns the works of an implementation, which were compiled."""
  values, size = gaussian(shapes)
  works: dict[tuple[str, ...], turns.Work] = {}
  for work, job in measures.jobs(codec, values).items():
    piece.check()
    key = (*kind, work)
    works[key] = turns.plan(job, _repeats(size), rounds)
  return works


def _quality(
  text: str, shapes: Shapes, codec: gradients.GradientCodec
) -> tuple[dict[str, float], float]:
  """Measures the quality of a method, whose codec for 8 workers is given.

  Returns:
    The quality, and the seconds that are proportional to the elements: all
    except those of compiling, in the first draw.
  """
  values, size = gaussian(shapes)
  alone = gradient_codecs.build(text, shapes, 1)
  if native.available():
    alone = bucketing.on_kernels(alone)
  draws = max(2, min(32, _DRAWN_ELEMENTS // size))
  ends: list[float] = []
  found = measured_quality.measure(
    codec,
    alone,
    values,
    draws,
    measures.WORKERS,
    lambda: ends.append(time.perf_counter()),
  )
  a_draw = ends[1] - ends[0]
  return found._asdict(), a_draw + time.perf_counter() - ends[0]


def measure_rivals(
  name: str,
  shapes: Shapes,
  rounds: int,
  budget: turns.Budget | None = None,
  cases_left: int = 1,
) -> Iterator[Row]:
  """Measures `rivals` on one list of gradients, as `measure` does.

  All of them share a budget.
  """
  budget = budget or turns.Budget()
  size = elements(shapes)
  for number, (rival, build) in enumerate(rivals.RIVALS.items()):
    row: Row = {'gradient': name, 'codec': rival, 'kind': 'rival'}
    end = budget.end(cases_left * len(rivals.RIVALS) - number)
    try:
      with budget.piece(rival, size) as piece:
        values, _ = gaussian(shapes)
        built = build(tf.concat([tf.reshape(g, [-1]) for g in values], axis=0))
        works: dict[tuple[str, ...], turns.Work] = {
          (rival, 'rival', work): turns.plan(job, _repeats(size), rounds)
          for work, job in built.jobs.items()
        }
        piece.prepared(works.values())
        seconds = _take(works, size, rounds, end=end)
    except turns.OutOfBudgetError:
      yield row | note(budget)
      continue
    measured = speeds(seconds, (rival, 'rival'), size)
    yield {**row, **measured, 'bits_by_length': built.bits}


def elements(shapes: Shapes) -> int:
  """Returns the number of elements of gradients of these shapes."""
  return sum(math.prod(shape) for shape in shapes)


def gaussian(shapes: Shapes) -> tuple[list[tf.Tensor], int]:
  """Returns gradients of these shapes, and the number of elements."""
  values = [tf.constant(value) for value in _gaussian(tuple(shapes))]
  return values, elements(shapes)


# Drawing takes seconds for a large gradient, and every code gets the same.
@functools.lru_cache(maxsize=1)
def _gaussian(shapes: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
  rng = np.random.default_rng(0)
  return [rng.standard_normal(shape, np.float32) for shape in shapes]


def _repeats(size: int) -> int:
  return max(1, min(_MOST_REPEATS, _ELEMENTS_A_JOB // size))


def _take(
  works: dict[tuple[str, ...], turns.Work],
  size: int,
  rounds: int,
  advance: Callable[[], object] = lambda: None,
  end: float = math.inf,
) -> dict[tuple[str, ...], list[float]]:
  """Times works and a memory copy in turns."""
  times = _repeats(size)
  copy = turns.Work(timing.memory_copy(size, times), times, rounds)
  return turns.take({COPY: copy, **works}, rounds, advance, end)


def _kinds(text: str, shapes: Shapes) -> dict[_Kind, gradients.GradientCodec]:
  """Returns the codecs of a method by (text, implementation)."""
  codec = gradient_codecs.build(text, shapes, measures.WORKERS)
  fast = bucketing.on_kernels(codec) if native.available() else codec
  kinds = {}
  if fast.buckets[0].method is not codec.buckets[0].method:
    kinds[text, 'native'] = fast
  kinds[text, 'XLA' if codec.compiled else 'graph'] = codec
  return kinds


def speeds(
  seconds: Mapping[tuple[str, ...], Sequence[float]],
  kind: _Kind,
  size: int,
) -> dict[str, float]:
  """Returns GB/s of float32 and time relative to the copy, by kind of work."""
  found = {}
  for work in WORKS:
    job = (*kind, work)
    if job not in seconds:
      continue
    copies = measures.WORKERS if work == 'decode_sum' else 1
    if work not in _UPDATES:
      median = statistics.median(seconds[job])
      found[f'{work}_gb_s'] = 4e-9 * size * copies / median
    ratio = statistics.median(
      a / b for a, b in zip(seconds[job], seconds[COPY], strict=False)
    )
    found[f'{work}_to_copy'] = ratio / copies
  return found


def line(row: Row) -> str:
  """Returns a row in a line: times in memory copies, bits, error; or a note."""
  begin = f'{row["gradient"]}  {row["codec"]} ({row["kind"]}): '
  if NOTE in row:
    return f'{begin}{row[NOTE]}'
  times = ', '.join(
    f'{work} {row[f"{work}_to_copy"]:.3g}'
    for work in WORKS
    if f'{work}_to_copy' in row
  )
  counted = next(k for k in ('bits_by_length', 'bits_by_formula') if k in row)
  ends = f'{row[counted]:.3g} bits'
  if 'error' in row:
    ends += f', error {row["error"]:.3g}'
  return f'{begin}copies: {times}; {ends}'


def table(rows: list[Row]) -> pd.DataFrame:
  """Returns the rows of all cases as a rounded table."""
  found = pd.DataFrame(rows)
  fine = found.filter(regex='^(bits|entropy|error)')
  return found.round(3).assign(**fine.round(4))


def chart(measured: pd.DataFrame) -> figure.Figure:
  """Plots time relative to the copy by size, one line per codec of `table`."""
  page = figure.Figure(figsize=(15, 5), dpi=120, layout='tight')
  singles = measured[~measured['gradient'].isin(list(nets.NETS))]
  works = ('encode', 'decode', 'decode_sum')
  for axis, work in zip(page.subplots(1, 3, sharey=True), works, strict=True):
    column = f'{work}_to_copy'
    timed = singles.dropna(subset=column) if column in singles else singles[:0]
    for (codec, kind), lines in timed.groupby(['codec', 'kind'], sort=False):
      axis.loglog(
        lines['gradient'].astype(float),
        lines[column],
        'o-' if kind == 'native' else 'o:',
        label=f'{codec} ({kind})',
      )
    axis.axhline(1, color='black', linewidth=0.5)
    axis.set_xlabel('elements')
    axis.set_title(f'{work}: time relative to a memory copy')
    axis.grid(alpha=0.3)
  if axis.get_legend_handles_labels()[0]:
    axis.legend(fontsize='x-small')
  return page
