"""What a metric is, and how tables of them are read.

The tables are in `metrics`.
"""

from collections.abc import Callable
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
    axes: `Axes`.
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
  show: Callable
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
  compute: Callable
  tag: str = ''
  line: str = ''
  brackets: str = ''
  curve: Drawn | None = None
  fact: Shown | None = None
  column: Shown | None = None
  compared: Drawn | None = None


def tags(table):
  """{name: TensorBoard's tag} of the metrics whose tag is not their name."""
  return {metric.name: metric.tag for metric in table if metric.tag}


def texts(table, values, part, without=()):
  """What a log line says.

  Args:
    table: of `Metric`.
    values: dict of name to number.
    part: 'line' or 'brackets'.
    without: names to leave out.

  Returns:
    List of str, one of each metric that has such a text and a value.
  """
  formats = (
    getattr(metric, part)
    for metric in table
    if metric.name in values and metric.name not in without
  )
  return [text.format_map(values) for text in formats if text]


def entries(table, field):
  """The metrics of a table that fill a field, those to be first first.

  Args:
    table: of `Metric`.
    field: name of a field that is `Drawn`, `Shown` or None.

  Returns:
    List of (`Metric`, the field's value).
  """
  found = [(metric, getattr(metric, field)) for metric in table]
  found = [(metric, entry) for metric, entry in found if entry]
  return sorted(found, key=lambda pair: not pair[1].first)
