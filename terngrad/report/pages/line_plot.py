"""Line plots as small SVG elements, drawn without a display.

The values are in attributes, so the script of the page can show them and smooth
the curves. Without the script the plot is complete.
"""

from collections.abc import Sequence
from typing import NamedTuple

from terngrad.report.pages import html_page
from terngrad.report.pages import scales

WIDTH, HEIGHT = 640, 280
_LEFT, _TOP, _RIGHT, _BOTTOM = 58, 10, 632, 246
_COLORS = 10
# Shorter curves have a dot at each point.
_DOTS_BELOW = 30

Point = tuple[float, float]

_PLOT = """\
<figure class="plot{{ ' whole' if whole else '' }}"><figcaption>{{ title }}
{%- if note %}
 <span class="soft">({{ note }})</span>{% endif %}</figcaption>
<svg viewBox="0 0 {{ width }} {{ height }}" role="img" aria-label="{{ title }}"
 data-frame="{{ frame }}" data-x="{{ x.low }} {{ x.high }}"
 data-y="{{ y.low }} {{ y.high }}"
{%- if y.logarithmic %} data-log="1"{% endif %}>
<path class="grid" d="{{ grid }}"/>
{% for at, text in y_ticks %}
<text class="end" x="{{ left - 6 }}" y="{{ at + 4 }}">{{ text }}</text>
{%- endfor %}
{% for at, text in x_ticks %}
<text class="middle" x="{{ at }}" y="{{ bottom + 16 }}">{{ text }}</text>
{%- endfor %}
<text class="end" x="{{ right }}" y="{{ height - 4 }}">step</text>
{% for curve in curves %}
<g class="curve c{{ curve.color }}" data-name="{{ curve.name }}" data-x="
{{- curve.steps }}" data-y="{{ curve.values }}">
{%- if curve.path %}<path d="M{{ curve.path }}"/>{% endif %}
{% for x, y in curve.dots %}<circle cx="{{ x }}" cy="{{ y }}" r="2.5"/>
{%- endfor %}</g>
{% endfor %}
</svg>
{% if named %}<ul class="legend">{% for curve in curves %}
<li class="c{{ curve.color }}"><span>{{ curve.name }}</span></li>
{%- endfor %}</ul>{% endif %}
</figure>
"""


class Line(NamedTuple):
  """A curve of a plot.

  Attributes:
    name: label in the legend; '' for none.
    points: (step, value), finite, by step; at least one.
    color: index of the colour; it is taken modulo the number of colours.
  """

  name: str
  points: Sequence[Point]
  color: int


class _Drawn(NamedTuple):
  """A line as the template needs it."""

  name: str
  color: int
  steps: str
  values: str
  path: str
  dots: list[Point]


def thin(points: Sequence[Point], most: int) -> tuple[list[Point], int]:
  """Averages groups of consecutive points, so that at most `most` remain.

  Returns:
    The points, each at the last step of its group, and the size of a group.
  """
  size = max(1, -(-len(points) // most))
  groups = (points[i : i + size] for i in range(0, len(points), size))
  return [
    (group[-1][0], sum(value / len(group) for _, value in group))
    for group in groups
  ], size


def draw(
  title: str,
  lines: Sequence[Line],
  logarithmic: bool,
  most: int,
  whole: bool = False,
) -> html_page.Markup:
  """Draws a plot.

  Args:
    title: title with the unit.
    lines: at least one.
    logarithmic: True for a logarithmic value axis, if all values are positive.
    most: largest number of points of a line; longer ones are averaged.
    whole: True lets the plot take the width of the page, up to a limit.

  Returns:
    A <figure> element. Equal arguments give equal text.
  """
  thinned = [thin(line.points, most) for line in lines]
  size = max(size for _, size in thinned)
  points = [point for found, _ in thinned for point in found]
  x = scales.fit((step for step, _ in points), _LEFT, _RIGHT)
  y = scales.fit((v for _, v in points), _BOTTOM, _TOP, logarithmic)
  x_ticks, y_ticks = x.labeled_ticks(), y.labeled_ticks()
  grid = [f'M{_LEFT} {at}H{_RIGHT}' for at, _ in y_ticks]
  grid += [f'M{at} {_BOTTOM}v4' for at, _ in x_ticks]
  return html_page.fragment(
    _PLOT,
    title=title,
    whole=whole,
    note=f'points are means of {size} records' if size > 1 else '',
    width=WIDTH,
    height=HEIGHT,
    frame=f'{_LEFT} {_TOP} {_RIGHT} {_BOTTOM}',
    x=x,
    y=y,
    left=_LEFT,
    right=_RIGHT,
    bottom=_BOTTOM,
    grid=''.join(grid),
    x_ticks=x_ticks,
    y_ticks=y_ticks,
    named=any(line.name for line in lines),
    curves=[
      _drawn(line, found, x, y)
      for line, (found, _) in zip(lines, thinned, strict=True)
    ],
  )


def _drawn(
  line: Line, points: Sequence[Point], x: scales.Scale, y: scales.Scale
) -> _Drawn:
  places = [
    (round(x.place(step), 1), round(y.place(value), 1))
    for step, value in points
  ]
  is_line = len(points) > 1
  return _Drawn(
    line.name,
    line.color % _COLORS,
    ' '.join(f'{step:.12g}' for step, _ in points),
    ' '.join(f'{value:.5g}' for _, value in points),
    ' '.join(f'{a:g},{b:g}' for a, b in places) if is_line else '',
    places if len(points) < _DOTS_BELOW else [],
  )
