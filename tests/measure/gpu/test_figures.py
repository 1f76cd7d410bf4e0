"""Figures pass from one process to another as lines."""

import math

import pytest

from terngrad.measure.gpu import figures


def test_a_figure_survives_the_line_and_other_lines_hold_none():
  figure = figures.Figure('ternary, "é"\n', 1.25, 'copies', 2.0)
  line = figures.encode(figure)
  assert '\n' not in line
  assert figures.decode(f'{line}\n') == figure
  for other in (
    '',
    'a message',
    'figure ',
    'figure [',
    'figure 3',
    'figure []',
  ):
    assert figures.decode(other) is None


@pytest.mark.parametrize(
  ('value', 'limit', 'exceeds'),
  [
    (1.0, 1.0, False),
    (1.1, 1.0, True),
    (math.nan, 1.0, True),
    (5.0, None, False),
    ('a name', None, False),
  ],
)
def test_numbers_above_the_limit_exceed_it_and_nan_does_too(
  value, limit, exceeds
):
  assert figures.Figure('a', value, '', limit).exceeds_limit == exceeds


@pytest.mark.parametrize(
  ('figure', 'line'),
  [
    (('words', 2, 'differ', 0.0), 'words: 2 differ (MORE THAN 0)'),
    (('step', 1.00049, '', 1.02), 'step: 1 (at most 1.02)'),
    (('copy', 4312.345, 'GB/s'), 'copy: 4312 GB/s'),
    (('words', 1048583.0), 'words: 1,048,583'),
    (('GPU', 'a name'), 'GPU: a name'),
    (('ratio', math.inf), 'ratio: inf'),
  ],
)
def test_lines_show_value_unit_and_limit(figure, line):
  assert figures.Figure(*figure).line() == line
