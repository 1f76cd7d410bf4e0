"""Named points with intervals, as an SVG element."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from terngrad.measure import labels
from terngrad.report.pages import html_page
from terngrad.report.pages import scales

_WIDTH, _FONT, _GAP = 960, 11.0, 9.0
_LEFT, _TOP, _RIGHT = 58, 10, 948
_LEAST_HEIGHT, _LINE = 340, 15
_COLORS = 10

_PLOT = """\
<figure class="plot whole"><figcaption>{{ title }}, over {{ over }}</figcaption>
<div class="wide"><svg viewBox="0 0 {{ width }} {{ bottom + 38 }}" role="img"
 aria-label="{{ title }}">
<path class="grid" d="{{ grid }}"/>
{% for at, text in y_ticks %}
<text class="end" x="{{ left - 6 }}" y="{{ at + 4 }}">{{ text }}</text>
{%- endfor %}
{% for at, text in x_ticks %}
<text class="middle" x="{{ at }}" y="{{ bottom + 16 }}">{{ text }}</text>
{%- endfor %}
<text class="end" x="{{ right }}" y="{{ bottom + 32 }}">{{ over }}</text>
{% for point in points %}
<g class="c{{ point.color }}"><title>{{ point.text }}</title>
<path class="error thin" d="{{ point.error }}"/>
<circle cx="{{ point.x }}" cy="{{ point.y }}" r="3.5"
 {{- ' class="hollow"' | safe if point.hollow else ' fill="currentColor"' | safe
 }}/>
<text class="name{{ '' if point.label.right else ' end' }}" x="{{
 point.label.x | round(1) }}" y="{{ (4 - point.label.y) | round(1) }}">
{{- point.name }}</text></g>
{% endfor %}
</svg></div></figure>
"""


class Named(NamedTuple):
  """A point of the plot.

  Attributes:
    name: label.
    x: horizontal value, finite.
    y: vertical value, finite.
    half: half width of the vertical interval; NaN for none.
    hollow: True for an open mark.
  """

  name: str
  x: float
  y: float
  half: float
  hollow: bool = False


def draw(
  title: str, over: str, points: Sequence[Named], logarithmic: bool
) -> html_page.Markup:
  """Draws points with names beside them.

  Args:
    title: title with the vertical unit.
    over: name of the horizontal axis.
    points: at least one.
    logarithmic: True for a logarithmic horizontal axis, if all values are
      positive.

  Returns:
    A <figure> element. Equal arguments give equal text.
  """
  bottom = max(_LEAST_HEIGHT, _LINE * len(points) + 40)
  x = scales.fit((p.x for p in points), _LEFT + 8, _RIGHT - 130, logarithmic)
  ends = [p.y + s * _known(p.half) for p in points for s in (-1, 1)]
  y = scales.fit(ends, bottom, _TOP)
  at = [(x.place(p.x), -y.place(p.y)) for p in points]
  area = labels.Box(_LEFT, -bottom, _RIGHT, -_TOP)
  names = [point.name for point in points]
  places = labels.place(at, names, area, _FONT, _GAP)
  x_ticks, y_ticks = x.labeled_ticks(), y.labeled_ticks()
  grid = [f'M{_LEFT} {tick}H{_RIGHT}' for tick, _ in y_ticks]
  grid += [f'M{tick} {_TOP}V{bottom}' for tick, _ in x_ticks]
  return html_page.fragment(
    _PLOT,
    title=title,
    over=over,
    width=_WIDTH,
    left=_LEFT,
    right=_RIGHT,
    bottom=bottom,
    grid=''.join(grid),
    x_ticks=x_ticks,
    y_ticks=y_ticks,
    points=[
      {
        'name': point.name,
        'text': f'{point.name}\n{over}: {point.x:.4g}\n{title}: {point.y:.4g}',
        'color': number % _COLORS,
        'x': round(px, 1),
        'y': round(-py, 1),
        'hollow': point.hollow,
        'label': label,
        'error': _error(point, px, -py, y, label),
      }
      for number, (point, (px, py), label) in enumerate(
        zip(points, at, places, strict=True)
      )
    ],
  )


def _known(half: float) -> float:
  return 0.0 if math.isnan(half) else half


def _error(
  point: Named, px: float, py: float, y: scales.Scale, label: labels.Label
) -> str:
  """Returns the path of the interval, and of a line to a moved name."""
  half = _known(point.half)
  low, high = y.place(point.y - half), y.place(point.y + half)
  path = f'M{px:.1f} {low:.1f}V{high:.1f}' if half else ''
  end = label.x + (-2 if label.right else 2)
  return f'{path}M{px:.1f} {py:.1f}L{end:.1f} {-label.y:.1f}'
