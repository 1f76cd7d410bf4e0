"""The paper's scaling figure, re-created, as model.csv and model.svg.

A step is computing and the wire. Computing is that of the bar of 4 GPUs, which
are one machine. Between machines a gradient travels once where there are two of
them, and twice (to servers and back) where there are more: `transfers`. float32
takes 32 bits an element each time; of ternary the bits, and of both a time that
every transfer waits, are fitted, and so is the bandwidth: four numbers a
cluster, by the least sum of squared errors of images a second, relative.

Beside it stands what `terngrad plan` says of this project's own exchanges on
the same machines, which code their gradients for free there: the sums of a
machine's GPUs, between machines. Of the bars it takes the computing of each
code, with 4 GPUs, and the bandwidth.
"""

import math
import pathlib

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import figure

from terngrad.measure.planning import model

HERE = pathlib.Path(__file__).parent
GPUS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
A_MACHINE = 4
# Parameters, and images a GPU and step. Of AlexNet 256 are inferred: with them
# float32's bars of two machines are one transfer at 0.9 Gbit/s, as those of the
# other nets are; with 128 they were one at 1.8, on links of 1.
NETS = {
  'AlexNet': (61.1e6, 256),
  'GoogLeNet': (6.6e6, 64),
  'VGG-A': (133e6, 32),
}
CODES = {'float32': 'identity', 'ternary': 'ternary'}
FREE = model.Coding(0.0, 0.0, 0.0)
# What stands beside the bars.
MARKS = {'fit': 'C0o', 'plan': 'C1^'}


def transfers(gpus):
  """How often a gradient travels."""
  machines = gpus // A_MACHINE
  return 0 if machines < 2 else 1 if machines == 2 else 2


def bars():
  """A row for every published bar, with its seconds of computing."""
  wide = pd.read_csv(HERE / 'published.csv')
  rows = wide.melt(
    ['cluster', 'net', 'code'], var_name='gpus', value_name='paper'
  )
  rows['gpus'] = rows['gpus'].astype(int)
  four = rows[rows['gpus'] == A_MACHINE].set_index(['cluster', 'net', 'code'])
  keys = zip(rows['cluster'], rows['net'], rows['code'], strict=True)
  batch = rows['net'].map(lambda net: NETS[net][1])
  rows['images'] = batch * rows['gpus']
  rows['computing'] = [
    A_MACHINE * images / four['paper'][key]
    for key, images in zip(keys, batch, strict=True)
  ]
  return rows


def fitted(rows):
  """(seconds an element and bit, bits of ternary, seconds a transfer waits)."""
  far = rows[rows['gpus'] > A_MACHINE]
  times = far['gpus'].map(transfers).to_numpy()
  size = far['net'].map(lambda net: NETS[net][0]).to_numpy()
  seconds = (far['images'] / far['paper']).to_numpy()
  wire = seconds - far['computing'].to_numpy()
  is_float = (far['code'] == 'float32').to_numpy()
  columns = np.stack(
    [times * size * 32 * is_float, times * size * ~is_float, times], 1
  )
  weight = 1 / seconds[:, np.newaxis]
  found, *_ = np.linalg.lstsq(columns * weight, wire / seconds, rcond=None)
  return found[0], found[1] / found[0], max(0.0, found[2])


def modelled(rows):
  """The rows of a cluster with images/s by the fit and by `terngrad plan`."""
  second, bits, wait = fitted(rows)
  rate = 1 / second
  print(
    f'{rows["cluster"].iloc[0]}: {rate / 1e9:.2f} Gbit/s, ternary {bits:.2f} '
    f'bits a transfer, {1e3 * wait:.0f} ms a transfer'
  )
  by_fit, by_plan = [], []
  for row in rows.itertuples():
    size, _ = NETS[row.net]
    own = 32 if row.code == 'float32' else bits
    times = transfers(row.gpus)
    step = row.computing + times * (own * size * second + wait)
    by_fit.append(row.images / step)
    machines = max(1, row.gpus // A_MACHINE)
    network = model.Network(rate, 5e-5, machines)
    shapes = [(1024, math.ceil(size / 1024))]
    plan = model.plan(CODES[row.code], shapes, row.computing, network, FREE)
    by_plan.append(row.images / plan.step)
  found = rows.assign(fit=by_fit, plan=by_plan)
  for name in MARKS:
    found[f'error of {name}'] = found[name] / found['paper'] - 1
  return found


def draw(rows):
  """A panel a cluster and net: images/s; below, how much faster ternary is."""
  page = figure.Figure(figsize=(11, 12), layout='constrained')
  clusters = rows['cluster'].unique()
  panels = page.subplots(2 * len(clusters), len(NETS), sharex=True)
  places = np.arange(len(GPUS))
  for i, cluster in enumerate(clusters):
    rates, ratios = panels[2 * i : 2 * i + 2]
    for above, below, net in zip(rates, ratios, NETS, strict=True):
      own = rows[(rows['cluster'] == cluster) & (rows['net'] == net)]
      codes = {
        code: own[own['code'] == code].set_index('gpus') for code in CODES
      }
      _draw_rates(above, places, codes)
      _draw_ratios(below, places, codes)
      above.set(title=f'{net}, {cluster}', xticks=places, xticklabels=GPUS)
    rates[0].set_ylabel('images/s')
    ratios[0].set_ylabel('ternary over float32')
  for axes in panels[-1]:
    axes.set_xlabel('GPUs, 4 a machine')
  panels[0][0].legend(fontsize='small')
  panels[1][0].legend(fontsize='small')
  return page


def _draw_rates(axes, places, codes):
  """Images/s of both codes: the paper's bars side by side, and marks."""
  for side, colour, (code, own) in zip(
    (-0.2, 0.2), ('lightgrey', 'darkgrey'), codes.items(), strict=True
  ):
    axes.bar(
      places + side, own['paper'], 0.4, color=colour, label=f'paper, {code}'
    )
    for name, mark in MARKS.items():
      axes.plot(places + side, own[name], mark, markersize=4)
  axes.set_yscale('log')


def _draw_ratios(axes, places, codes):
  """How many times as fast ternary is."""
  one, two = codes['ternary'], codes['float32']
  ratio = one['paper'] / two['paper']
  axes.bar(places, ratio, color='lightgrey', label='paper')
  for name, mark in MARKS.items():
    axes.plot(places, one[name] / two[name], mark, label=name)
  axes.axhline(1, color='black', linewidth=0.5)


def main():
  """Writes both files and prints the errors."""
  rows = pd.concat(
    [modelled(own) for _, own in bars().groupby('cluster', sort=False)],
    ignore_index=True,
  )
  rows.round(4).to_csv(HERE / 'model.csv', index=False)
  with mpl.rc_context({'svg.hashsalt': 'model.svg'}):
    draw(rows).savefig(HERE / 'model.svg', metadata={'Date': None})
  far = rows[rows['gpus'] > A_MACHINE]
  for cluster, own in far.groupby('cluster', sort=False):
    for error in [f'error of {name}' for name in MARKS]:
      size = own[error].abs()
      worst = own.loc[size.idxmax()]
      print(
        f'{cluster}, {error}: median {size.median():.1%}, the worst '
        f'{worst[error]:+.1%} ({worst["net"]}, {worst["code"]}, '
        f'{worst["gpus"]} GPUs)'
      )


if __name__ == '__main__':
  main()
