"""Codecs beside each other: speed over that of a memory copy, and quality."""

import statistics

import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib import figure

from slim.nets import factory as nets
from terngrad import errors
from terngrad import native
from terngrad.codec.methods import registry
from terngrad.measure import codecs as measures
from terngrad.measure import rivals
from terngrad.measure import timing

# A job repeats its work until it has gone through so many elements.
_ELEMENTS_A_JOB = 2**27
_MOST_REPEATS = 100
# More draws say nothing new about so many elements.
_DRAWN_ELEMENTS = 2**23


def codecs(texts):
  """Dict of text, as `--codec` spells it, to the `coded.Code`.

  Raises:
    errors.ConfigError: a text names no code of one message.
  """
  with errors.as_config_error():
    return {text: registry.parse(text) for text in texts}


def cases(sizes, names):
  """What is coded.

  Args:
    sizes: elements of single gradients, as text, such as '1e6'.
    names: of nets whose variables are coded.

  Returns:
    Dict of name to the shapes of a list of gradients.

  Raises:
    errors.ConfigError: a size is not a whole number >= 1.
    slim.errors.UnknownNameError: there is no such net.
  """
  found = {}
  for text in sizes:
    with errors.as_config_error():
      size = float(text)
    if size < 1 or size % 1:
      raise errors.ConfigError(
        f'sizes: expected whole numbers >= 1, received {text!r}. Write for '
        'example 1e6.'
      )
    found[f'{int(size):.3g}'] = [(int(size),)]
  for name in names:
    model = nets.build(name, num_classes=10)
    found[name] = [tuple(v.shape) for v in model.trainable_variables]
  return found


def measure(parsed, name, shapes, rounds, with_rivals):
  """Measures every codec on one list of gradients.

  A codec with native kernels is measured twice, with its twin.

  Args:
    parsed: from `codecs`.
    name: of the case.
    shapes: of its gradients, which are Gaussian.
    rounds: to take the median of.
    with_rivals: True to measure `rivals` too.

  Returns:
    List of dict, a row for every codec and rival.
  """
  rng = np.random.default_rng(0)
  gradients = [
    tf.constant(rng.standard_normal(shape, np.float32)) for shape in shapes
  ]
  size = sum(int(np.prod(shape)) for shape in shapes)
  times = max(1, min(_MOST_REPEATS, _ELEMENTS_A_JOB // size))
  jobs = {'copy': (timing.memory_copy(size, times), times)}
  kinds = _kinds(parsed)
  for kind, codec in kinds.items():
    for work, job in measures.jobs(codec, gradients, times).items():
      jobs[kind, work] = job, times
  bits = {}
  if with_rivals:
    flat = tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)
    for rival in rivals.rivals(flat, times):
      bits[rival.name, 'rival'] = rival.bits
      for work, job in rival.jobs.items():
        jobs[(rival.name, 'rival'), work] = job, times
  seconds = timing.in_turns(jobs, rounds)
  draws = max(2, min(32, _DRAWN_ELEMENTS // size))
  rows = []
  for kind in [*kinds, *bits]:
    row = {'gradient': name, 'codec': kind[0], 'kind': kind[1]}
    row |= _speeds(seconds, kind, size)
    if kind in kinds:
      row |= measures.quality(kinds[kind], gradients, draws)._asdict()
    else:
      row |= {'bits_by_length': bits[kind]}
    rows.append(row)
  return rows


def _kinds(parsed):
  """Dict of (text, how it is computed) to codec."""
  kinds = {}
  for text, codec in parsed.items():
    fast = codec.on_kernels() if native.available() else codec
    if fast is not codec:
      kinds[text, 'native'] = fast
    kinds[text, 'XLA' if codec.compiled else 'graph'] = codec
  return kinds


def _speeds(seconds, kind, size):
  """GB/s of float32 and ratios to the copy, by kind of work."""
  found = {}
  for work in ('probe', 'encode', 'decode', 'decode_sum'):
    job = kind, work
    if job not in seconds:
      continue
    copies = measures.WORKERS if work == 'decode_sum' else 1
    found[f'{work}_gb_s'] = (
      4e-9 * size * copies / statistics.median(seconds[job])
    )
    found[f'{work}_to_copy'] = timing.ratio(seconds, job, 'copy') / copies
  for work in ('update', 'fused_update'):
    if (kind, work) in seconds:
      found[f'{work}_to_copy'] = timing.ratio(seconds, (kind, work), 'copy')
  return found


def table(rows):
  """The rows of all cases as a `pandas.DataFrame`, rounded."""
  return pd.DataFrame(rows).round(
    {
      column: 4 if column.startswith(('bits', 'entropy', 'error')) else 3
      for row in rows
      for column in row
      if column not in ('gradient', 'codec', 'kind')
    }
  )


def chart(measured):
  """Time over the copy's, by size, a line a codec.

  Args:
    measured: from `table`.

  Returns:
    `matplotlib.figure.Figure`.
  """
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
    axis.set_title(f'{work}: time over that of a memory copy')
    axis.grid(alpha=0.3)
  axis.legend(fontsize='x-small')
  return page
