"""Results of a check: JSON that is complete after each figure, and a table."""

import json
import os
import pathlib
from typing import TYPE_CHECKING

from slim.datasets.records import disk
from terngrad import lazy
from terngrad.measure.gpu import figures

if TYPE_CHECKING:
  import pandas as pd

pandas = lazy.module('pandas')

FORMAT = 'terngrad gpu check 1'
# How a part ended.
DONE, FAILED, KILLED, SKIPPED = 'done', 'failed', 'killed', 'skipped'
RUNNING = 'running'
NAME = 'gpu_check'


class CheckResults:
  """The figures of all parts, and how each part ended.

  Attributes:
    folder: output folder.
    statuses: how each part ended, by name, in a sentence.
  """

  def __init__(self, folder: str | os.PathLike[str], device: str) -> None:
    """Creates empty results and the folder."""
    self.folder, self._device = pathlib.Path(folder), device
    self.folder.mkdir(parents=True, exist_ok=True)
    self.statuses: dict[str, str] = {}
    self._figures: dict[tuple[str, str], figures.Figure] = {}

  def add(self, part: str, figure: figures.Figure) -> None:
    """Adds a figure, in place of an earlier one with its name."""
    self._figures[part, figure.name] = figure
    self.end_part(part, RUNNING)

  def end_part(self, part: str, status: str) -> None:
    """Records how a part ended, or that it runs, and replaces the files."""
    self.statuses[part] = status
    text = json.dumps(
      {
        'format': FORMAT,
        'device': self._device,
        'parts': self.statuses,
        'figures': [
          {'part': part, **figure._asdict()}
          for (part, _), figure in self._figures.items()
        ],
      },
      indent=1,
    )
    disk.write_text(self.folder / f'{NAME}.json', f'{text}\n')
    disk.write_text(self.folder / f'{NAME}.txt', f'{self.text()}\n')

  @property
  def passed(self) -> bool:
    """Whether all parts ended, and no figure exceeds its limit."""
    ended = all(status.startswith(DONE) for status in self.statuses.values())
    return ended and not any(
      figure.exceeds_limit for figure in self._figures.values()
    )

  def table(self) -> 'pd.DataFrame':
    """Returns one row for each figure, as texts."""
    rows = [
      {
        'part': part,
        'figure': figure.name,
        'value': figure.text(),
        'unit': figure.unit,
        'limit': '' if figure.limit is None else f'{figure.limit:g}',
        '': 'TOO LARGE' if figure.exceeds_limit else '',
      }
      for (part, _), figure in self._figures.items()
    ]
    return pandas.DataFrame(rows)

  def text(self) -> str:
    """Returns the table, then how each part ended."""
    lines = [self.table().to_string(index=False)] if self._figures else []
    lines += [f'{name}: {status}' for name, status in self.statuses.items()]
    return '\n'.join(lines)
