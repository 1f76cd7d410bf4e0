"""Types of the tables in `metrics`, and functions that read the tables."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple


class Axes(NamedTuple):
  """The axes of a plot, which several metrics may share.

  Attributes:
    title: title with the unit.
    logarithmic: True for a logarithmic value axis.
  """

  title: str
  logarithmic: bool = False


class CurveFormat(NamedTuple):
  """How a plot draws a metric.

  Attributes:
    axes: the plot.
    label: label in the legend of a plot with several curves.
    factor: factor of the values; 100 shows a fraction in percent.
    first: True draws the curve before the other curves of the plot.
  """

  axes: Axes
  label: str = ''
  factor: float = 1
  first: bool = False


class CellFormat(NamedTuple):
  """How a table shows a metric.

  Attributes:
    label: label of the row or column, with the unit.
    show: converts a value to the entry of the table.
    first: True puts the metric before the others.
  """

  label: str
  show: Callable[[float], object]
  first: bool = False


class Metric(NamedTuple):
  """A logged number.

  Attributes:
    name: name in `metrics.jsonl` and in the formats below.
    compute: computes the number; its arguments depend on the table.
    tag: TensorBoard's tag; empty for `name`.
    line: text in the log line, a format of all values by name, such as
      'loss = {loss:.2f}'; empty for none. Runs with parameter servers do not
      log it: their lines have one loss.
    brackets: text in the brackets of the log line of every run, likewise.
    curve: curve on the page of a run; None for none.
    fact: entry of the last value in the table of that page; None for none.
    column: column in the table of compared runs; None for none.
    compared: plot with one curve per compared run; None for none.
  """

  name: str
  compute: Callable[..., Any]
  tag: str = ''
  line: str = ''
  brackets: str = ''
  curve: CurveFormat | None = None
  fact: CellFormat | None = None
  column: CellFormat | None = None
  compared: CurveFormat | None = None


def tags(table: Iterable[Metric]) -> dict[str, str]:
  """Returns TensorBoard's tags, by name, of metrics whose tag differs."""
  return {metric.name: metric.tag for metric in table if metric.tag}


def texts(
  table: Iterable[Metric],
  values: Mapping[str, float],
  part: str,
  without: Collection[str] = (),
) -> list[str]:
  """Formats the texts of a log line.

  Args:
    table: metrics in the order of the texts.
    values: values by name.
    part: 'line' or 'brackets'.
    without: names of metrics to leave out.

  Returns:
    One text for each metric that has such a format and a value.
  """
  formats = (
    getattr(metric, part)
    for metric in table
    if metric.name in values and metric.name not in without
  )
  return [text.format_map(values) for text in formats if text]


def entries(table: Iterable[Metric], field: str) -> list[tuple[Metric, Any]]:
  """Lists (metric, its field) for the metrics of a table that have the field.

  `field` names a field of type `CurveFormat` or `CellFormat`. Metrics whose
  field has `first` come first; otherwise the order of the table remains.
  """
  found = [(m, getattr(m, field)) for m in table if getattr(m, field)]
  return sorted(found, key=lambda pair: not pair[1].first)
