"""Times of codes on an accelerator, over a copy within its memory."""

import functools
import math
from collections.abc import Callable
from collections.abc import Collection

import tensorflow as tf

from terngrad.measure import codec_table
from terngrad.measure import codecs as measures
from terngrad.measure import gradient_codecs
from terngrad.measure import launches
from terngrad.measure import turns
from terngrad.reduce import bucketing

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
  end: float = math.inf,
  works: Collection[str] = codec_table.WORKS,
) -> list[codec_table.Row]:
  """Times a method on one list of gradients, in turns with copies.

  Errors and entropies are not measured: the words equal those of the CPU.

  Args:
    device: name of the device.
    text: the method.
    name: name of the case.
    shapes: shapes of the gradients, which are Gaussian.
    rounds: rounds of timing; the median is reported.
    advance: called `rounds + 1` times.
    end: as for `turns.take`.
    works: the works to time.

  Returns:
    One row, with the keys of `codec_table.measure`.
  """
  built = gradient_codecs.build(text, shapes, measures.WORKERS)
  codec = bucketing.on_gpus(built)
  kind = f'{"XLA" if codec.compiled else "graph"}, device'
  with tf.device(device):
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
        planned[text, kind, work] = turns.plan(job, most, rounds)
    advance()
    seconds = turns.take(planned, rounds, advance, end)
  speeds = codec_table.speeds(seconds, (text, kind), size)
  bits = codec.bits(measures.WORKERS) / codec.num_elements
  return [
    {
      'gradient': name,
      'codec': text,
      'kind': kind,
      **speeds,
      'bits_by_formula': bits,
    }
  ]
