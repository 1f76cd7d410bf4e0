"""The plot of a plan."""

from terngrad.codec.methods import registry
from terngrad.measure.planning import chart as charts
from terngrad.measure.planning import model

GIGABIT = model.Network(1e9, 0.0, 2)
FREE = model.Coding(0.0, 0.0, 0.0)


def draw(*texts):
  costs = dict.fromkeys(['identity', *texts], FREE)
  return charts.draw(texts, [(64, 64)], 0.1, GIGABIT, costs)


def test_chart_has_a_line_for_every_codec():
  for axes in draw('ternary').axes:
    labels = [line.get_label() for line in axes.lines]
    assert labels[:2] == ['identity', 'ternary']


def test_no_two_codes_look_alike():
  codes = [text for text in registry.CODECS if text != 'identity']
  chart = draw(*codes)
  for axes in chart.axes:
    lines = axes.lines[: len(codes) + 1]
    looks = {(line.get_color(), line.get_linestyle()) for line in lines}
    assert len(looks) == len(lines)
  # Ten codes, as by default, have ten colours.
  colours = {line.get_color() for line in chart.axes[0].lines[:11]}
  assert len(colours) == 11


def test_the_legend_is_beside_the_plots():
  chart = draw('ternary', 'error_feedback+powersgd:rank=1')
  chart.draw_without_rendering()
  (legend,) = chart.legends
  box = legend.get_window_extent()
  assert all(axes.get_legend() is None for axes in chart.axes)
  for axes in chart.axes:
    assert not box.overlaps(axes.get_tightbbox())
  assert [text.get_text() for text in legend.get_texts()] == [
    'identity',
    'ternary',
    'error_feedback+powersgd:rank=1',
  ]
