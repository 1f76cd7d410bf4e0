"""Plot of the errors that codecs add to the mean of real gradients."""

import pandas as pd
from matplotlib import figure
from matplotlib import ticker

from terngrad.measure import labels


def chart(measured: pd.DataFrame) -> figure.Figure:
  """Plots the error of the mean by bits, one panel per file of gradients.

  `measured` is from `variance.table`. Codecs without an error have no marker.
  """
  panels = measured.groupby('gradients', sort=False)
  columns = min(len(panels), 2)
  rows = -(-len(panels) // columns)
  page = figure.Figure(figsize=(8 * columns, 6 * rows), dpi=120, layout='tight')
  every = [*page.subplots(rows, columns, squeeze=False).flat]
  drawn = [(n, f[f['mean'] > 0]) for n, f in panels]
  for axis, (name, found) in zip(every, drawn, strict=False):
    for number, (_, row) in enumerate(found.iterrows()):
      axis.loglog(row['bits'], row['mean'], 'o', color=f'C{number}')
    axis.margins(x=0.15, y=0.1)
    axis.set_xlabel('bits/element')
    axis.set_ylabel("squared error of the mean / a worker's mean square")
    axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter('{x:g}')
    axis.xaxis.set_minor_formatter('')
    axis.set_title(name)
    axis.grid(alpha=0.3)
  for axis in every[len(drawn) :]:
    axis.set_axis_off()
  # Names depend on the positions of the axes.
  page.draw_without_rendering()
  page.set_layout_engine('none')
  for axis, (_, found) in zip(every, drawn, strict=False):
    names, xs, ys = (list(found[n]) for n in ('codec', 'bits', 'mean'))
    labels.annotate(axis, names, xs, ys, [f'C{n}' for n in range(len(found))])
  return page
