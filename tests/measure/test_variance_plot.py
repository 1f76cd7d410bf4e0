"""The plot of errors by bits: names beside markers, apart from each other."""

import itertools

import pandas as pd

from terngrad.measure import variance_plot


def table(files=1):
  rows = [
    (f'file {f}', f'ternary:group_size={i}', 1.6 + i / 100, 0.1 + i / 1e3)
    for f in range(files)
    for i in range(12)
  ]
  rows.append(('file 0', 'identity', 32.0, 0.0))
  rows.append(('file 0', 'several messages', 4.0, float('nan')))
  return pd.DataFrame(rows, columns=['gradients', 'codec', 'bits', 'mean'])


def test_names_of_codecs_do_not_overlap():
  page = variance_plot.chart(table())
  page.draw_without_rendering()
  (axes,) = page.axes
  boxes = [text.get_window_extent() for text in axes.texts]
  # What has no error has no place on a logarithmic axis.
  assert len(boxes) == 12
  for a, b in itertools.combinations(boxes, 2):
    assert not a.overlaps(b)
  for box in boxes:
    assert axes.bbox.x0 <= box.x0 < box.x1 <= axes.bbox.x1


def test_there_are_two_panels_in_a_row():
  page = variance_plot.chart(table(files=3))
  titles = [axes.get_title() for axes in page.axes]
  assert titles == ['file 0', 'file 1', 'file 2', '']
  assert list(page.get_size_inches()) == [16, 12]
