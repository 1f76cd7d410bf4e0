"""The paper's scaling figure, re-created, as model.csv and model.svg.

A step consists of computing and transfers. The computing time is that of the
bar of 4 GPUs, which are one machine. A gradient is sent once between two
machines, and twice (to servers and back) between more: `transfers`. float32
takes 32 bits per element and transfer. Fitted per cluster are the bits of
ternary, the bandwidth, and a waiting time per transfer, equal for both codes:
they minimize the sum of squared errors of a step's seconds, relative to those
of the bars. A waiting time below 0 is 0, and the others are fitted again.

The figure also has the predictions of `terngrad plan` for this project's
exchanges between the same machines, which send the sums of their GPUs'
gradients. Coding is free in these predictions. The computing time of each code
with 4 GPUs and the bandwidth are those of the bars.
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
# Parameters, and images per GPU and step. AlexNet's 256 are inferred: with 256
# float32's bars of two machines fit one transfer at 0.9 Gbit/s, as those of the
# other nets do; with 128 they would need 1.8 Gbit/s, on links of 1 Gbit/s.
NETS = {
  'AlexNet': (61.1e6, 256),
  'GoogLeNet': (6.6e6, 64),
  'VGG-A': (133e6, 32),
}
CODES = {'float32': 'identity', 'ternary': 'ternary'}
FREE = model.Coding(0.0, 0.0, 0.0, adding=0.0)
# Markers of the predictions over the bars.
MARKS = {'fit': 'C0o', 'plan': 'C1^'}


def transfers(gpus):
  """Returns how often a gradient is sent between machines."""
  machines = gpus // A_MACHINE
  return 0 if machines < 2 else 1 if machines == 2 else 2


def bars():
  """Returns a row for every published bar, with its seconds of computing."""
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


def fit(rows):
  """Returns (seconds per bit, bits of ternary, seconds a transfer waits)."""
  far = rows[rows['gpus'] > A_MACHINE]
  times = far['gpus'].map(transfers).to_numpy()
  size = far['net'].map(lambda net: NETS[net][0]).to_numpy()
  seconds = (far['images'] / far['paper']).to_numpy()
  wire = seconds - far['computing'].to_numpy()
  is_float = (far['code'] == 'float32').to_numpy()
  columns = np.stack(
    [times * size * 32 * is_float, times * size * ~is_float, times], 1
  )
  columns /= seconds[:, np.newaxis]
  found, *_ = np.linalg.lstsq(columns, wire / seconds, rcond=None)
  if found[2] < 0:
    found, *_ = np.linalg.lstsq(columns[:, :2], wire / seconds, rcond=None)
    found = [*found, 0.0]
  return found[0], found[1] / found[0], found[2]


def predict(rows):
  """Adds images/s by the fit and by `terngrad plan` to a cluster's rows."""
  second, bits, wait = fit(rows)
  rate = 1 / second
  print(
    f'{rows["cluster"].iloc[0]}: {rate / 1e9:.2f} Gbit/s, ternary {bits:.2f} '
    f'bits/element, {1e3 * wait:.0f} ms wait per transfer'
  )
  by_fit, by_plan = [], []
  for row in rows.itertuples():
    size, _ = NETS[row.net]
    width = 32 if row.code == 'float32' else bits
    times = transfers(row.gpus)
    step = row.computing + times * (width * size * second + wait)
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
  """Draws images/s, and below the speed-up of ternary, by cluster and net."""
  page = figure.Figure(figsize=(11, 12), layout='constrained')
  clusters = rows['cluster'].unique()
  panels = page.subplots(2 * len(clusters), len(NETS), sharex=True)
  positions = np.arange(len(GPUS))
  for i, cluster in enumerate(clusters):
    rates, ratios = panels[2 * i : 2 * i + 2]
    for above, below, net in zip(rates, ratios, NETS, strict=True):
      part = rows[(rows['cluster'] == cluster) & (rows['net'] == net)]
      codes = {
        code: part[part['code'] == code].set_index('gpus') for code in CODES
      }
      _draw_rates(above, positions, codes)
      _draw_ratios(below, positions, codes)
      above.set(title=f'{net}, {cluster}', xticks=positions, xticklabels=GPUS)
    rates[0].set_ylabel('images/s')
    ratios[0].set_ylabel('ternary over float32')
  for axes in panels[-1]:
    axes.set_xlabel('GPUs, 4 a machine')
  panels[0][0].legend(fontsize='small')
  panels[1][0].legend(fontsize='small')
  return page


def _draw_rates(axes, positions, codes):
  """Draws images/s of both codes: bars of the paper, and predictions."""
  for side, colour, (code, part) in zip(
    (-0.2, 0.2), ('lightgrey', 'darkgrey'), codes.items(), strict=True
  ):
    axes.bar(
      positions + side, part['paper'], 0.4, color=colour, label=f'paper, {code}'
    )
    for name, mark in MARKS.items():
      axes.plot(positions + side, part[name], mark, markersize=4)
  axes.set_yscale('log')


def _draw_ratios(axes, positions, codes):
  """Draws the speed-up of ternary over float32."""
  one, two = codes['ternary'], codes['float32']
  ratio = one['paper'] / two['paper']
  axes.bar(positions, ratio, color='lightgrey', label='paper')
  for name, mark in MARKS.items():
    axes.plot(positions, one[name] / two[name], mark, label=name)
  axes.axhline(1, color='black', linewidth=0.5)


def main():
  """Writes both files and prints the errors."""
  rows = pd.concat(
    [predict(part) for _, part in bars().groupby('cluster', sort=False)],
    ignore_index=True,
  )
  rows.round(4).to_csv(HERE / 'model.csv', index=False)
  with mpl.rc_context({'svg.hashsalt': 'model.svg'}):
    draw(rows).savefig(HERE / 'model.svg', metadata={'Date': None})
  far = rows[rows['gpus'] > A_MACHINE]
  for cluster, part in far.groupby('cluster', sort=False):
    for error in [f'error of {name}' for name in MARKS]:
      size = part[error].abs()
      worst = part.loc[size.idxmax()]
      print(
        f'{cluster}, {error}: median {size.median():.1%}, worst '
        f'{worst[error]:+.1%} ({worst["net"]}, {worst["code"]}, '
        f'{worst["gpus"]} GPUs)'
      )


if __name__ == '__main__':
  main()
