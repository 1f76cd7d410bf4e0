r"""Measures codecs: speed as ratios to a memory copy, and quality.

  python -m terngrad.bin.measure_codec
  python -m terngrad.bin.measure_codec --codecs=ternary --sizes=1.6e7 --compare

For every codec and every size, or list of a net's variables: the time to probe
and encode, to decode one payload, and to decode the sum of 8, in GB/s of
float32 and over the time of copying the gradient (the sum: over 8 copies); to
decode the sum of 2 and update parameters with momentum, one after the other
(update) and, where a kernel can, at once (descend), over the copy; bits
an element by formula and by length; the entropy of the codes; the squared
error; and a z-score of the bias. A codec with native kernels stands twice, with
its twin that XLA compiles. Gradients are Gaussian. Jobs take turns, round by
round, and a ratio is the median of the ratios within a round.
"""

import os
import statistics
import sys

import numpy as np
import pandas as pd
import tensorflow as tf
from absl import app
from absl import flags
from matplotlib import figure

from slim.nets import factory as nets
from terngrad import native
from terngrad.codec import accelerated
from terngrad.codec.methods import registry
from terngrad.measure import codecs as measures
from terngrad.measure import rivals
from terngrad.measure import timing

CODECS = flags.DEFINE_multi_string(
  'codecs',
  list(registry.KINDS),
  'Codecs, as mnist_train --codec spells them; repeat for several.',
)
SIZES = flags.DEFINE_list(
  'sizes',
  ['1e3', '1e4', '1e5', '1e6', '1e7', '1e8'],
  'Elements of single gradients.',
)
NETS = flags.DEFINE_list(
  'nets',
  ['cifar10_alexnet', 'lenet'],
  'Nets whose lists of variables are measured.',
)
ROUNDS = flags.DEFINE_integer('rounds', 11, 'Rounds to take the median of.')
COMPARE = flags.DEFINE_bool(
  'compare', False, 'Also NumPy, naive TensorFlow and int8 as GRACE sends it.'
)
OUTPUT = flags.DEFINE_string(
  'output', '', 'Folder for measure_codec.csv and measure_codec.png.'
)

# A job repeats its work until it has gone through so many elements.
_ELEMENTS_A_JOB = 2**27
_MOST_REPEATS = 100
# More draws say nothing new about so many elements.
_DRAWN_ELEMENTS = 2**23


def main(arguments):
  """Measures and prints; returns the exit code."""
  if len(arguments) > 1:
    raise app.UsageError(f'Expected flags only, received {arguments[1]!r}.')
  try:
    codecs = {text: registry.parse(text) for text in CODECS.value}
    cases = dict(_cases())
  except ValueError as error:
    sys.stderr.write(f'error: {error}\n')
    return 2
  rows = []
  for name, shapes in cases.items():
    sys.stderr.write(f'{name}\n')
    rows += _measure(name, shapes, codecs)
  table = _table(rows)
  with pd.option_context('display.width', 200):
    print(table.to_string(index=False))
  if OUTPUT.value:
    os.makedirs(OUTPUT.value, exist_ok=True)
    table.to_csv(os.path.join(OUTPUT.value, 'measure_codec.csv'), index=False)
    _plot(table, os.path.join(OUTPUT.value, 'measure_codec.png'))
  return 0


def _cases():
  """Yields (name, shapes of the variables)."""
  for text in SIZES.value:
    size = float(text)
    if size < 1 or size != int(size):
      raise ValueError(
        f'sizes: expected whole numbers >= 1, received {text!r}.'
      )
    yield f'{int(size):.3g}', [(int(size),)]
  for name in NETS.value:
    if name not in nets.NETS:
      raise ValueError(
        f'nets: expected some of {", ".join(sorted(nets.NETS))}, received '
        f'{name!r}.'
      )
    model = nets.build(name, num_classes=10)
    yield name, [tuple(v.shape) for v in model.trainable_variables]


def _measure(name, shapes, codecs):
  """One row for every codec and rival on one case."""
  rng = np.random.default_rng(0)
  gradients = [
    tf.constant(rng.standard_normal(shape, np.float32)) for shape in shapes
  ]
  size = sum(int(np.prod(shape)) for shape in shapes)
  times = max(1, min(_MOST_REPEATS, _ELEMENTS_A_JOB // size))
  jobs = {'copy': (timing.memory_copy(size, times), times)}
  kinds = {}
  for text, codec in codecs.items():
    fast = accelerated.on_kernels(codec) if native.available() else codec
    if fast is not codec:
      kinds[text, 'native'] = fast
    kinds[text, 'XLA' if codec.compiled else 'graph'] = codec
  bits = {}
  for kind, codec in kinds.items():
    for work, job in measures.jobs(codec, gradients, times).items():
      jobs[kind, work] = job, times
  if COMPARE.value:
    flat = tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)
    for rival in rivals.rivals(flat, times):
      bits[rival.name, 'rival'] = rival.bits
      for work, job in rival.jobs.items():
        jobs[(rival.name, 'rival'), work] = job, times
  seconds = timing.in_turns(jobs, ROUNDS.value)
  rows = []
  for kind in [*kinds, *bits]:
    row = {'gradient': name, 'codec': kind[0], 'kind': kind[1]}
    row |= _speeds(seconds, kind, size)
    if kind in kinds:
      draws = max(2, min(32, _DRAWN_ELEMENTS // size))
      quality = measures.quality(kinds[kind], gradients, draws)
      row |= quality._asdict()
    else:
      row |= {'bits_by_length': bits[kind]}
    rows.append(row)
  return rows


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
  for work in ('update', 'descend'):
    if (kind, work) in seconds:
      found[f'{work}_to_copy'] = timing.ratio(seconds, (kind, work), 'copy')
  return found


def _table(rows):
  return pd.DataFrame(rows).round(
    {
      column: 4 if column.startswith(('bits', 'entropy', 'error')) else 3
      for row in rows
      for column in row
      if column not in ('gradient', 'codec', 'kind')
    }
  )


def _plot(table, path):
  """Time over the copy's, by size, a line a codec."""
  page = figure.Figure(figsize=(15, 5))
  singles = table[~table['gradient'].isin(list(nets.NETS))]
  works = ('encode', 'decode', 'decode_sum')
  for axis, work in zip(page.subplots(1, 3, sharey=True), works, strict=True):
    for (codec, kind), lines in singles.groupby(['codec', 'kind'], sort=False):
      axis.plot(
        lines['gradient'].astype(float),
        lines[f'{work}_to_copy'],
        'o-' if kind == 'native' else 'o:',
        label=f'{codec} ({kind})',
      )
    axis.axhline(1, color='black', linewidth=0.5)
    axis.set_xscale('log')
    axis.set_yscale('log')
    axis.set_xlabel('elements')
    axis.set_title(f'{work}: time over that of a memory copy')
    axis.grid(alpha=0.3)
  axis.legend(fontsize='x-small')
  page.tight_layout()
  page.savefig(path, dpi=120)


if __name__ == '__main__':
  sys.exit(app.run(main))
