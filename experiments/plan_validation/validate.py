"""Compares `terngrad plan` with measured steps; writes planned.csv and .svg.

recorded.csv has the predictions that were committed before the measurements.
planned.csv and planned.svg have those of the plan as it is now.

`parameters/NET.json` was written by `terngrad plan --fitted_to` from steps of
two hosts at 1,000 and at 100 Mbit/s. All hosts share one machine with two
cores, so each of three or four hosts has less than a core: computing and coding
are multiplied by 1.5 and 2. `measured/NET_HOSTS_RATE.csv` is a table of
`terngrad measure exchange --real`. A step without such a table has a prediction
only.
"""

import pathlib

import matplotlib as mpl
import pandas as pd
from matplotlib import figure

from terngrad.measure.planning import parameters as parameters_lib
from terngrad.measure.processes import exchanges

HERE = pathlib.Path(__file__).parent
CORES = 2
FITTED = [(2, 1000), (2, 100)]
COMPRESSED = (
  'ternary',
  'minmax:bits=4',
  'error_feedback+stc',
  'error_feedback+powersgd:rank=1',
)
# Predicted steps that are not fitted: codecs by (hosts, Mbit/s).
PLANNED = {
  'lenet': {
    (2, 10): ('identity', 'fp16', *COMPRESSED),
    (3, 100): ('identity', 'fp16', *COMPRESSED),
    (4, 1000): ('identity', 'fp16', *COMPRESSED),
    (3, 10): COMPRESSED,
    (4, 10): COMPRESSED,
  },
  'single_column_alexnet': {
    (2, 10): ('ternary', *COMPRESSED[2:]),
    (2, 300): ('identity', 'fp16', *COMPRESSED),
    (3, 100): COMPRESSED,
    (4, 1000): ('fp16', *COMPRESSED),
    (3, 10): COMPRESSED[2:],
  },
  'resnet_v1_50': {
    (2, 10): ('ternary', *COMPRESSED[2:]),
    (3, 100): COMPRESSED,
    (4, 1000): ('fp16', *COMPRESSED),
  },
  'vgg_a': {
    (2, 10): COMPRESSED[2:],
    (2, 300): ('fp16', *COMPRESSED),
    (3, 100): ('ternary', *COMPRESSED[2:]),
    (4, 1000): COMPRESSED,
  },
}


def compare(net, planned):
  """Returns a row for every step: predicted and, if known, measured."""
  known = parameters_lib.read(HERE / 'parameters' / f'{net}.json')
  subject = exchanges.subject(net, real=False)
  shapes = subject.shapes
  known = known._replace(statistics=subject.statistics)
  rows = []
  for hosts, rate in [*FITTED, *planned]:
    share = max(1.0, hosts / CORES)
    shared = known._replace(
      computing=share * known.computing, coding=share * known.coding
    )
    table = HERE / 'measured' / f'{net}_{hosts}_{rate}mbit.csv'
    found = {}
    if table.exists():
      measured, _ = parameters_lib.read_measured(f'{table}@{rate}e6', shapes)
      found = {one.text: one.seconds for one in measured}
    is_fitted = (hosts, rate) in FITTED
    for code in found if is_fitted else planned[hosts, rate]:
      rows.append(
        {
          'net': net,
          'hosts': hosts,
          'Mbit/s': rate,
          'codec': code,
          'fitted': is_fitted,
          'planned': shared.plan(code, shapes, rate * 1e6, hosts).step,
          'measured': found.get(code),
        }
      )
  return rows


def draw(rows):
  """Draws planned over measured seconds."""
  page = figure.Figure(figsize=(7, 6), layout='constrained')
  axes = page.subplots()
  for net, steps in rows.groupby('net', sort=False):
    (line,) = axes.loglog(
      *(steps[steps['fitted']][name] for name in ('measured', 'planned')),
      'o',
      fillstyle='none',
      label=f'{net}, fitted',
    )
    axes.loglog(
      *(steps[~steps['fitted']][name] for name in ('measured', 'planned')),
      'o',
      color=line.get_color(),
      label=f'{net}, not fitted',
    )
  ends = rows['measured'].min() / 1.5, rows['measured'].max() * 1.5
  axes.loglog(ends, ends, 'k-', linewidth=0.5)
  axes.set(xlabel='measured, s a step', ylabel='planned, s a step')
  axes.legend(fontsize='small')
  return page


def print_errors(name, rows):
  """Prints the median and the largest absolute error of some rows."""
  size = rows['error'].abs().dropna()
  if not len(size):
    return
  worst = rows.loc[size.idxmax()]
  print(
    f'{name}: {len(size)} steps, median error {size.median():.1%}, worst '
    f'{worst["error"]:+.1%} ({worst["codec"]}, {worst["net"]}, '
    f'{worst["hosts"]} hosts, {worst["Mbit/s"]} Mbit/s)'
  )


def main():
  """Writes both files and prints the errors."""
  rows = pd.DataFrame(
    sum((compare(net, planned) for net, planned in PLANNED.items()), [])
  )
  rows['error'] = rows['planned'] / rows['measured'] - 1
  rows.round(5).to_csv(HERE / 'planned.csv', index=False)
  with mpl.rc_context({'svg.hashsalt': 'planned.svg'}):
    draw(rows).savefig(HERE / 'planned.svg', metadata={'Date': None})
  print_errors('fitted', rows[rows['fitted']])
  print_errors('not fitted', rows[~rows['fitted']])
  for (net, hosts, rate), steps in rows.groupby(
    ['net', 'hosts', 'Mbit/s'], sort=False
  ):
    print_errors(f'{net}, {hosts} hosts, {rate} Mbit/s', steps)


if __name__ == '__main__':
  main()
