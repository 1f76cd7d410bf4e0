"""What a metric is, and how tables of them are read.

The tables are in `metrics`.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple


class Axes(NamedTuple):
  """A plot, which several metrics may share.

  Attributes:
    title: with the unit.
    logarithmic: True for a logarithmic axis of values.
  """

  title: str
  logarithmic: bool = False


class Drawn(NamedTuple):
  """How a metric is drawn.

  Attributes:
    axes: of the plot.
    label: in the legend of a plot that has several curves.
    factor: of the values, 100 for a share in percent.
    first: True draws it before those of the same plot that are not.
  """

  axes: Axes
  label: str = ''
  factor: float = 1
  first: bool = False


class Shown(NamedTuple):
  """How a metric stands in a table.

  Attributes:
    label: of its row or column, with the unit.
    show: takes a value, returns what stands in the table.
    first: True puts it before those that are not.
  """

  label: str
  show: Callable[[float], object]
  first: bool = False


class Metric(NamedTuple):
  """A number that is logged.

  Attributes:
    name: in `metrics.jsonl`, and in the formats below.
    compute: the function that computes it; see the tables.
    tag: TensorBoard's; empty for `name`.
    line: its text in the log line, a format of all values by name, as
      'loss = {loss:.2f}'; empty for none. Parameter servers' lines, which have
      one loss, leave it out.
    brackets: the same, in the brackets of the log line of every run.
    curve: `Drawn` on the page of a run, or None.
    fact: `Shown` in the table of that page, its last value, or None.
    column: `Shown` in the table of compared runs, or None.
    compared: `Drawn` where runs are compared, a curve a run, or None.
  """

  name: str
  compute: Callable[..., Any]
  tag: str = ''
  line: str = ''
  brackets: str = ''
  curve: Drawn | None = None
  fact: Shown | None = None
  column: Shown | None = None
  compared: Drawn | None = None


def tags(table: Iterable[Metric]) -> dict[str, str]:
  """{name: TensorBoard's tag} of the metrics whose tag is not their name."""
  return {metric.name: metric.tag for metric in table if metric.tag}


def texts(
  table: Iterable[Metric],
  values: Mapping[str, float],
  part: str,
  without: Collection[str] = (),
) -> list[str]:
  """What a log line says.

  Args:
    table: metrics, in their order.
    values: by name.
    part: 'line' or 'brackets'.
    without: names to leave out.

  Returns:
    One of each metric that has such a text and a value.
  """
  formats = (
    getattr(metric, part)
    for metric in table
    if metric.name in values and metric.name not in without
  )
  return [text.format_map(values) for text in formats if text]


def entries(table: Iterable[Metric], field: str) -> list[tuple[Metric, Any]]:
  """The metrics of a table that fill a field, those to be first first.

  Args:
    table: metrics, in their order.
    field: name of one that is `Drawn`, `Shown` or None; it comes with each.
  """
  found = [(m, getattr(m, field)) for m in table if getattr(m, field)]
  return sorted(found, key=lambda pair: not pair[1].first)
