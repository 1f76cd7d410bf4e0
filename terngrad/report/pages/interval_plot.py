"""Means with intervals, one row per name, as an SVG element."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from terngrad.report.pages import html_page
from terngrad.report.pages import scales

_WIDTH, _ROW, _TOP, _GAP = 960, 18, 26, 24
_LETTER, _LONGEST = 6.4, 42

_PLOT = """\
<figure class="plot whole"><figcaption>{{ title }}</figcaption>
<div class="wide"><svg viewBox="0 0 {{ width }} {{ height }}" role="img"
 aria-label="{{ title }}">
{% for panel in panels %}
<text class="middle name" x="{{ panel.middle }}" y="14">{{ panel.title }}</text>
<path class="grid" d="{{ panel.grid }}"/>
{% if panel.zero %}<path class="zero" d="{{ panel.zero }}"/>{% endif %}
{% for at, text in panel.ticks %}
<text class="middle" x="{{ at }}" y="{{ height - 6 }}">{{ text }}</text>
{%- endfor %}
{% endfor %}
{% for row in rows %}
<g><title>{{ row.text }}</title>
<text class="end name" x="{{ names }}" y="{{ row.y + 4 }}">{{ row.name }}</text>
{% for mark in row.marks %}
<g class="c{{ loop.index0 }}">{% if mark.error %}
<path class="error" d="{{ mark.error }}"/>{% endif %}
<circle cx="{{ mark.x }}" cy="{{ row.y }}" r="3.5"
 {{- ' class="hollow"' | safe if mark.hollow else ' fill="currentColor"' | safe
 }}/></g>
{% endfor %}</g>
{% endfor %}
</svg></div></figure>
"""


class Panel(NamedTuple):
  """A column of the plot.

  Attributes:
    title: title with the unit.
    means: a value for each row; NaN for none.
    halves: half widths of the intervals; NaN for none.
    hollow: rows whose interval says nothing; they have a hollow mark.
    with_zero: True draws a line at 0.
  """

  title: str
  means: Sequence[float]
  halves: Sequence[float]
  hollow: Sequence[bool]
  with_zero: bool = False


class _Mark(NamedTuple):
  """A mean and its interval, in coordinates."""

  x: float
  error: str
  hollow: bool


class _Row(NamedTuple):
  """A row of marks."""

  name: str
  text: str
  y: int
  marks: list[_Mark]


def draw(
  title: str, names: Sequence[str], panels: Sequence[Panel]
) -> html_page.Markup:
  """Draws one row per name and one column per panel.

  Each panel has a finite mean. The names are unbroken; of long ones the end is
  left out, and the full name is shown under the pointer.

  Returns:
    A <figure> element. Equal arguments give equal text.
  """
  longest = min(max(map(len, names)), _LONGEST)
  left = 8 + math.ceil(_LETTER * longest)
  bottom = _TOP + _ROW * len(names)
  width = (_WIDTH - left - _GAP * len(panels)) / len(panels)
  drawn, rows = (
    [],
    [
      _Row(_short(name), name, _TOP + _ROW * i + _ROW // 2, [])
      for i, name in enumerate(names)
    ],
  )
  for number, panel in enumerate(panels):
    start = round(left + _GAP + number * (width + _GAP))
    scale = _scale(panel, start, round(start + width - 8))
    ticks = scale.labeled_ticks()
    drawn.append(
      {
        'title': panel.title,
        'middle': round(start + width / 2),
        'ticks': ticks,
        'grid': ''.join(f'M{at} {_TOP}V{bottom}' for at, _ in ticks),
        'zero': panel.with_zero
        and f'M{round(scale.place(0), 1)} {_TOP}V{bottom}',
      }
    )
    for i, values in enumerate(
      zip(panel.means, panel.halves, panel.hollow, strict=True)
    ):
      rows[i] = _add(rows[i], panel.title, scale, *values)
  return html_page.fragment(
    _PLOT,
    title=title,
    width=_WIDTH,
    height=bottom + 26,
    names=left,
    panels=drawn,
    rows=rows,
  )


def _scale(panel: Panel, start: int, end: int) -> scales.Scale:
  limits = [0.0] if panel.with_zero else []
  for mean, half in zip(panel.means, panel.halves, strict=True):
    if not math.isnan(mean):
      limits += [mean] if math.isnan(half) else [mean - half, mean + half]
  return scales.fit(limits, start, end)


def _add(
  row: _Row,
  title: str,
  scale: scales.Scale,
  mean: float,
  half: float,
  hollow: bool,
) -> _Row:
  """Adds a panel's mean and interval to a row, if there is one."""
  if math.isnan(mean):
    return row
  error, text = '', f'{row.text}\n{title}: {mean:.4g}'
  if not math.isnan(half):
    low, high = (round(scale.place(mean + s * half), 1) for s in (-1, 1))
    ends = ''.join(f'M{x} {row.y - 4}v8' for x in (low, high))
    error, text = f'M{low} {row.y}H{high}{ends}', f'{text} ± {half:.2g}'
  mark = _Mark(round(scale.place(mean), 1), error, hollow)
  return row._replace(text=text, marks=[*row.marks, mark])


def _short(name: str) -> str:
  return name if len(name) <= _LONGEST else f'{name[: _LONGEST - 1]}…'
