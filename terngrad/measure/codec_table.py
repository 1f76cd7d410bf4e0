"""Comparison of codecs: time relative to a memory copy, and quality."""

import statistics
from collections.abc import Mapping
from collections.abc import Sequence
from typing import cast

import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib import figure

from slim.nets import factory as nets
from terngrad import errors
from terngrad import native
from terngrad.codec import coded
from terngrad.codec.methods import registry
from terngrad.measure import codecs as measures
from terngrad.measure import rivals
from terngrad.measure import timing

# A job repeats its work until it has processed this many elements.
_ELEMENTS_A_JOB = 2**27
_MOST_REPEATS = 100
# Limits the draws: more draws add no information for large gradients.
_DRAWN_ELEMENTS = 2**23
_COPY = ('copy',)
_UPDATES = ('update', 'fused_update')
_WORKS = ('probe', 'encode', 'decode', 'decode_sum', *_UPDATES)

Shapes = list[tuple[int, ...]]
Row = dict[str, str | float]


def codecs(texts: Sequence[str]) -> dict[str, coded.Code]:
  """Parses codecs in the syntax of `--codec`; returns them by text.

  Raises:
    errors.ConfigError: a text does not name a codec with a single message.
  """
  with errors.as_config_error():
    return {text: registry.parse(text) for text in texts}


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
  parsed: Mapping[str, coded.Code],
  name: str,
  shapes: Shapes,
  rounds: int,
  with_rivals: bool,
) -> list[Row]:
  """Measures every codec on one list of gradients.

  A codec with native kernels is measured with them and without them.

  Args:
    parsed: from `codecs`.
    name: name of the case.
    shapes: shapes of the gradients, which are Gaussian.
    rounds: rounds of timing; the median is reported.
    with_rivals: True also measures `rivals`.

  Returns:
    One row for every codec and rival.
  """
  rng = np.random.default_rng(0)
  gradients = [
    tf.constant(rng.standard_normal(shape, np.float32)) for shape in shapes
  ]
  size = sum(int(np.prod(shape)) for shape in shapes)
  times = max(1, min(_MOST_REPEATS, _ELEMENTS_A_JOB // size))
  draws = max(2, min(32, _DRAWN_ELEMENTS // size))
  jobs, quality = {}, {}
  for kind, codec in _kinds(parsed).items():
    jobs[kind] = measures.jobs(codec, gradients, times)
    quality[kind] = measures.quality(codec, gradients, draws)._asdict()
  if with_rivals:
    flat = tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)
    for rival in rivals.rivals(flat, times):
      jobs[rival.name, 'rival'] = rival.jobs
      quality[rival.name, 'rival'] = {'bits_by_length': rival.bits}
  copy = timing.memory_copy(size, times)
  works: dict[tuple[str, ...], tuple[timing.Job, int]] = {_COPY: (copy, times)}
  for kind, kind_jobs in jobs.items():
    works |= {(*kind, work): (job, times) for work, job in kind_jobs.items()}
  seconds = timing.alternate(works, rounds)
  return [
    {
      'gradient': name,
      'codec': kind[0],
      'kind': kind[1],
      **_speeds(seconds, kind, size),
      **quality[kind],
    }
    for kind in jobs
  ]


def _kinds(
  parsed: Mapping[str, coded.Code],
) -> dict[tuple[str, str], coded.Code]:
  """Returns the codecs by (text, implementation)."""
  kinds = {}
  for text, codec in parsed.items():
    fast = codec.on_kernels() if native.available() else codec
    if fast is not codec:
      # `parsed` holds codes of one message, and so do their kernels.
      kinds[text, 'native'] = cast(coded.Code, fast)
    kinds[text, 'XLA' if codec.compiled else 'graph'] = codec
  return kinds


def _speeds(
  seconds: Mapping[tuple[str, ...], Sequence[float]],
  kind: tuple[str, str],
  size: int,
) -> dict[str, float]:
  """Returns GB/s of float32 and time relative to the copy, by kind of work."""
  found = {}
  for work in _WORKS:
    job = (*kind, work)
    if job not in seconds:
      continue
    copies = measures.WORKERS if work == 'decode_sum' else 1
    if work not in _UPDATES:
      median = statistics.median(seconds[job])
      found[f'{work}_gb_s'] = 4e-9 * size * copies / median
    found[f'{work}_to_copy'] = timing.ratio(seconds, job, _COPY) / copies
  return found


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
    for (codec, kind), lines in singles.groupby(['codec', 'kind'], sort=False):
      axis.loglog(
        lines['gradient'].astype(float),
        lines[f'{work}_to_copy'],
        'o-' if kind == 'native' else 'o:',
        label=f'{codec} ({kind})',
      )
    axis.axhline(1, color='black', linewidth=0.5)
    axis.set_xlabel('elements')
    axis.set_title(f'{work}: time relative to a memory copy')
    axis.grid(alpha=0.3)
  axis.legend(fontsize='x-small')
  return page
