"""Times of codes on an accelerator, over a copy within its memory."""

import functools
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator

import tensorflow as tf

from terngrad.measure import codec_table
from terngrad.measure import codecs as measures
from terngrad.measure import gradient_codecs
from terngrad.measure import launches
from terngrad.measure import turns
from terngrad.reduce import bucketing
from terngrad.reduce import gradients

# 512 MB of float32, beyond the cache of every accelerator.
SIZES = ('134217728',)
CACHED_ELEMENTS = 2**25
# One synchronization follows launches that process this many elements.
_ELEMENTS_A_JOB = 2**34
_MOST_LAUNCHES = 1000


def measure(
  device: str,
  text: str,
  name: str,
  shapes: codec_table.Shapes,
  rounds: int,
  advance: Callable[[], object] = lambda: None,
  budget: turns.Budget | None = None,
  cases_left: int = 1,
  works: Collection[str] = codec_table.WORKS,
) -> Iterator[codec_table.Row]:
  """Times a method on one list of gradients, in turns with copies.

  Errors and entropies are not measured: the words equal those of the CPU.

  Args:
    device: name of the device.
    text: the method.
    name: name of the case.
    shapes: shapes of the gradients, which are Gaussian.
    rounds: rounds of timing; the median is reported.
    advance: called `rounds + 1` times.
    budget: the seconds of this method; None has no limit.
    cases_left: number of cases that share these seconds, with this one.
    works: the works to time.

  Yields:
    One row, with the keys of `codec_table.measure`.
  """
  budget = budget or turns.Budget()
  built = gradient_codecs.build(text, shapes, measures.WORKERS)
  codec = bucketing.on_gpus(built)
  kind = f'{"XLA" if codec.compiled else "graph"}, device'
  row: codec_table.Row = {'gradient': name, 'codec': text, 'kind': kind}
  size = codec_table.elements(shapes)
  end = budget.end(cases_left)
  try:
    with budget.piece(kind, size) as piece, tf.device(device):
      planned = _planned(device, codec, (text, kind), shapes, rounds, works)
      piece.prepared(planned.values())
      advance()
      seconds = turns.take(planned, rounds, advance, end)
  except turns.OutOfBudgetError:
    yield row | codec_table.note(budget)
    return
  speeds = codec_table.speeds(seconds, (text, kind), size)
  bits = codec.bits(measures.WORKERS) / codec.num_elements
  yield {**row, **speeds, 'bits_by_formula': bits}


def _planned(
  device: str,
  codec: gradients.GradientCodec,
  kind: tuple[str, str],
  shapes: codec_table.Shapes,
  rounds: int,
  works: Collection[str],
) -> dict[tuple[str, ...], turns.Work]:
  """Returns the works to time, and the copy, all of which were compiled."""
  values, size = codec_table.gaussian(shapes)
  most = max(1, min(_MOST_LAUNCHES, _ELEMENTS_A_JOB // size))
  repeat = functools.partial(launches.repeatable, device)
  jobs = measures.jobs(codec, values, repeat, device)
  planned: dict[tuple[str, ...], turns.Work] = {
    codec_table.COPY: turns.plan(
      launches.memory_copy(device, size), most, rounds
    )
  }
  for work, job in jobs.items():
    if work in works:
      key = (*kind, work)
      planned[key] = turns.plan(job, most, rounds)
  return planned
