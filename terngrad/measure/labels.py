"""Names beside the markers of a plot, moved so that they do not overlap."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib import axes as axes_lib

_FONT = 7.0  # points, about 'x-small'
# Width of a letter and height of a line, as multiples of the font's size.
_LETTER, _LINE = 0.62, 1.25
_GAP = 7.0  # points between a marker and its name


class Box(NamedTuple):
  """A rectangle; y grows upwards."""

  left: float
  bottom: float
  right: float
  top: float


class Label(NamedTuple):
  """The position of a name.

  Attributes:
    x: position of the edge next to the marker.
    y: position of the middle.
    right: True if the name is at the right of its marker.
  """

  x: float
  y: float
  right: bool


def place(
  points: Sequence[tuple[float, float]],
  names: Sequence[str],
  area: Box,
  font: float,
  gap: float,
) -> list[Label]:
  """Places names beside points, as near as they do not overlap.

  Names that share horizontal space keep the order of their points, so lines
  from markers to names do not cross. They are at the right of their markers, or
  at the left where they would leave the area.

  Args:
    points: (x, y) of the markers; y grows upwards.
    names: a name for each point.
    area: where names may be. Names overlap if they are more than its height.
    font: size of the font, in the points' units.
    gap: distance of a name from its marker.

  Returns:
    A label for each point.
  """
  line = _LINE * font
  edges, spans = [], []
  columns = _columns([x for x, _ in points], 3 * gap)
  for (left, right), name in zip(columns, names, strict=True):
    width = _LETTER * font * len(name)
    fits = right + gap + width <= area.right
    edges.append(right + gap if fits else left - gap)
    start = edges[-1] if fits else edges[-1] - width
    spans.append((start, start + width))
  found: dict[int, Label] = {}
  for group in _groups(spans):
    group.sort(key=lambda i: (points[i][1], i))
    heights = _spread([points[i][1] for i in group], line)
    for rank, (i, height) in enumerate(zip(group, heights, strict=True)):
      highest = area.top - line * (len(group) - rank - 0.5)
      height = max(min(height, highest), area.bottom + line * (rank + 0.5))
      found[i] = Label(edges[i], height, edges[i] > points[i][0])
    _return(group, found, points, spans, line, area)
  return [found[i] for i in range(len(points))]


def _return(
  group: Sequence[int],
  found: dict[int, Label],
  points: Sequence[tuple[float, float]],
  spans: Sequence[tuple[float, float]],
  line: float,
  area: Box,
) -> None:
  """Moves the labels of a group back towards their points, into free space."""
  for i in group:
    taken = [
      found[j].y
      for j in group
      if j != i and spans[j][0] < spans[i][1] and spans[i][0] < spans[j][1]
    ]
    y = max(min(points[i][1], area.top - line / 2), area.bottom + line / 2)
    moved = found[i].y - y
    steps = math.ceil(abs(moved) / (line / 4))
    for step in range(steps):
      at = y + math.copysign(step * line / 4, moved)
      if all(abs(other - at) >= line for other in taken):
        found[i] = found[i]._replace(y=at)
        break


def _columns(xs: Sequence[float], near: float) -> list[tuple[float, float]]:
  """Returns for each marker the (left, right) of the markers near it.

  A name beside one of them would cover the others. Markers are near if steps of
  at most `near` lead from one to the other.
  """
  order = sorted(range(len(xs)), key=lambda i: xs[i])
  columns: list[list[int]] = []
  for i in order:
    if not columns or xs[i] - xs[columns[-1][-1]] > near:
      columns.append([])
    columns[-1].append(i)
  found = {i: (xs[c[0]], xs[c[-1]]) for c in columns for i in c}
  return [found[i] for i in range(len(xs))]


def _groups(spans: Sequence[tuple[float, float]]) -> list[list[int]]:
  """Divides intervals into groups that share no point; returns indices."""
  groups: list[list[int]] = []
  end = float('-inf')
  for i in sorted(range(len(spans)), key=lambda i: spans[i]):
    if spans[i][0] >= end:
      groups.append([])
    groups[-1].append(i)
    end = max(end, spans[i][1])
  return groups


def _spread(wanted: Sequence[float], line: float) -> list[float]:
  """Returns heights at least `line` apart, with the least squared moves.

  Args:
    wanted: heights in ascending order.
    line: least distance.
  """
  # Blocks of touching names: (number, mean of the wanted lowest height).
  blocks: list[tuple[int, float]] = []
  for height in wanted:
    count, low = 1, height
    while blocks and blocks[-1][1] + blocks[-1][0] * line > low:
      number, lowest = blocks.pop()
      low = (number * lowest + count * (low - number * line)) / (number + count)
      count += number
    blocks.append((count, low))
  return [low + i * line for count, low in blocks for i in range(count)]


def annotate(
  axes: axes_lib.Axes,
  names: Sequence[str],
  xs: Sequence[float],
  ys: Sequence[float],
  colors: Sequence[str] = (),
) -> None:
  """Writes names beside points inside the axes; thin lines lead to moved ones.

  Args:
    axes: the axes; their position and limits must be final.
    names: labels of the points.
    xs: horizontal coordinates, in the axes' units.
    ys: vertical coordinates, in the axes' units.
    colors: colours of the names; empty for black.
  """
  unit = axes.figure.dpi / 72
  points = [
    (float(x), float(y))
    for x, y in axes.transData.transform([*zip(xs, ys, strict=True)])
  ]
  area = Box(*axes.bbox.extents)
  places = place(points, names, area, _FONT * unit, _GAP * unit)
  for i in sorted(range(len(points)), key=lambda i: (points[i][1], i)):
    label, (x, y) = places[i], points[i]
    axes.annotate(
      names[i],
      (xs[i], ys[i]),
      xytext=((label.x - x) / unit, (label.y - y) / unit),
      textcoords='offset points',
      fontsize=_FONT,
      parse_math=False,
      ha='left' if label.right else 'right',
      va='center',
      color=colors[i] if colors else None,
      arrowprops={
        'arrowstyle': '-',
        'alpha': 0.4,
        'linewidth': 0.5,
        'relpos': (0 if label.right else 1, 0.5),
        'shrinkA': 0,
      },
    )
