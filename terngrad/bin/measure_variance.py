r"""Measures how far codes move the mean of real gradients.

  python -m terngrad.bin.measure_variance --gradients=lenet=G.npz --output=O

The files are dump_gradients'. For every codec: bits an element; the squared
error of one worker's gradient and that of the workers' mean, both over the mean
square of a worker's gradient; how often less than plain TernGrad's the latter
is; and by how much the mean is shortened, which is the bias of clipping.
"""

import os
import sys

import pandas as pd
import tqdm
from absl import app
from absl import flags
from matplotlib import figure

from terngrad.measure import variance

_BASE = 'ternary'

GRADIENTS = flags.DEFINE_multi_string(
  'gradients', None, 'NAME=FILE, repeat for several.', required=True
)
CODECS = flags.DEFINE_multi_string(
  'codecs',
  [
    _BASE,
    'ternary:clip_factor=0',
    'ternary:dither=stratified',
    'ternary:sharing=thin',
    'ternary:group_size=4096',
    'ternary:group_size=512',
    'ternary:group_size=512,dither=stratified',
    'ternary:clip_factor=0,group_size=512',
    'ternary:clip_factor=0,group_size=64',
    'ternary:clip_factor=0,group_size=64,dither=stratified',
    'eden3',
    'fp16',
  ],
  'Codecs, as mnist_train --codec spells them; repeat for several.',
)
DRAWS = flags.DEFINE_integer(
  'draws', 16, 'How often the gradients are sent.', lower_bound=1
)
OUTPUT = flags.DEFINE_string(
  'output', '', 'Folder for measure_variance.csv and measure_variance.png.'
)


def main(arguments):
  """Measures and prints; returns the exit code."""
  if len(arguments) > 1:
    raise app.UsageError(f'Expected flags only, received {arguments[1]!r}.')
  rows = []
  try:
    files = [_read(item) for item in GRADIENTS.value]
    pairs = [(file, text) for file in files for text in CODECS.value]
    for (name, arrays), text in tqdm.tqdm(pairs, unit='code', disable=None):
      found = variance.errors(text, arrays, DRAWS.value)
      rows.append({'gradients': name, 'codec': text} | found._asdict())
  except ValueError as error:
    sys.stderr.write(f'error: {error}\n')
    return 2
  table = pd.DataFrame(rows)
  table['gain'] = _gains(table)
  with pd.option_context('display.width', 200):
    print(table.round(4).to_string(index=False))
  if OUTPUT.value:
    os.makedirs(OUTPUT.value, exist_ok=True)
    path = os.path.join(OUTPUT.value, 'measure_variance.csv')
    table.round(5).to_csv(path, index=False)
    _plot(table, os.path.join(OUTPUT.value, 'measure_variance.png'))
  return 0


def _read(item):
  """(name, list of float32 [workers, ...]) of NAME=FILE."""
  name, equals, path = item.partition('=')
  if not (name and equals and path):
    raise ValueError(
      f'gradients: expected NAME=FILE, received {item!r}. Write for example '
      'lenet=gradients.npz.'
    )
  return name, variance.read(path)


def _gains(table):
  """The error of the mean of plain TernGrad's over each code's."""
  base = table[table['codec'] == _BASE].set_index('gradients')['mean']
  return table['gradients'].map(base) / table['mean']


def _plot(table, path):
  """Error of the mean by bits, a panel a file."""
  names = list(table['gradients'].unique())
  page = figure.Figure(figsize=(8 * len(names), 6))
  axes = page.subplots(1, len(names), squeeze=False)[0]
  for axis, name in zip(axes, names, strict=True):
    for _, row in table[table['gradients'] == name].iterrows():
      axis.plot(row['bits'], row['mean'], 'o')
      axis.annotate(
        row['codec'], (row['bits'], row['mean']), fontsize='x-small'
      )
    axis.set_xscale('log')
    axis.set_yscale('log')
    axis.set_xlabel('bits an element')
    axis.set_ylabel("squared error of the mean / a worker's mean square")
    axis.set_title(name)
    axis.grid(alpha=0.3)
  page.tight_layout()
  page.savefig(path, dpi=120)


if __name__ == '__main__':
  sys.exit(app.run(main))
