"""The epochs of runs, as CSV and as a plot.

The columns, the naming scheme, and the parameters in a first line that begins
with # follow Caffe2's `resnet50_trainer`,
https://github.com/facebookarchive/caffe2.
"""

import collections
import csv
import io
import json
import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from matplotlib import figure

from slim.datasets.records import disk
from terngrad.training import metrics

COLUMNS = (
  'time_spent',
  'cumulative_time_spent',
  'input_count',
  'cumulative_input_count',
  'cumulative_batch_count',
  'inputs_per_sec',
  'accuracy',
  'epoch',
  'learning_rate',
  'loss',
  'test_accuracy',
)
# Test accuracy of an epoch that was not tested.
NOT_TESTED = -1
_TIME = '%Y%m%d_%H%M%S'


def path_in(
  folder: str | os.PathLike[str], stem: str, now: datetime | None = None
) -> pathlib.Path:
  """Returns the path of a run's log: the existing one, or a new path.

  Args:
    folder: directory of the run.
    stem: the run's parameters, as 'resnet50_gpu2_b64_L1000_lr0.10_v2'.
    now: time of a new log; None for the present.

  Returns:
    For example folder / f'{stem}_20170411_141617.log'.
  """
  new = pathlib.Path(folder, f'{stem}_{now or datetime.now():{_TIME}}.log')
  return min(pathlib.Path(folder).glob(f'{stem}_*.log'), default=new)


def names(folders: Sequence[str]) -> list[str]:
  """Names folders by their last part, or by the whole path if parts are equal.

  So runs/a/train and runs/b/train have different names.
  """
  paths = [os.path.abspath(folder) for folder in folders]
  last = {path: os.path.basename(path) for path in paths}
  counts = collections.Counter(last.values())
  return [path if counts[last[path]] > 1 else last[path] for path in paths]


def rows(
  found: Sequence[Mapping[str, Any]], batch_size: int, tested: str = ''
) -> list[dict[str, Any]]:
  """Computes the rows of a run's log, one per epoch.

  Args:
    found: records from `records.read`.
    batch_size: examples per step.
    tested: subset whose top-1 accuracy is the test accuracy; '' for none.

  Returns:
    For each finished epoch, values by the names in `COLUMNS`: training time in
    seconds, accuracies as fractions, loss and accuracy as means over the epoch.
  """
  score = metrics.epoch_name(tested, metrics.EVALUATION[0])
  result: list[dict[str, Any]] = []
  logged: Mapping[str, Any] = {}
  time_before, step_before = 0.0, 0
  for record in found:
    if 'epoch' not in record:
      # Records of other values, such as the sparsity, have no time.
      logged = record if metrics.SECONDS.name in record else logged
      continue
    seconds, step = logged.get(metrics.SECONDS.name) or 0.0, record['step']
    spent, count = seconds - time_before, (step - step_before) * batch_size
    result.append(
      {
        'time_spent': spent,
        'cumulative_time_spent': seconds,
        'input_count': count,
        'cumulative_input_count': step * batch_size,
        'cumulative_batch_count': step,
        'inputs_per_sec': count / spent if spent > 0 else 0.0,
        'accuracy': logged.get(metrics.EPOCH_ACCURACY.name),
        'epoch': record['epoch'],
        'learning_rate': logged.get('learning_rate'),
        'loss': logged.get(metrics.EPOCH_LOSS.name),
        'test_accuracy': record.get(score, NOT_TESTED),
      }
    )
    time_before, step_before = seconds, step
  return result


def write(
  path: str | os.PathLike[str],
  parameters: Mapping[str, Any],
  found: Sequence[Mapping[str, Any]],
) -> None:
  """Rewrites the log atomically.

  Args:
    path: path of the log.
    parameters: values in the first line, by name.
    found: rows from `rows`.
  """
  text = io.StringIO()
  text.write(f'# {json.dumps(parameters, sort_keys=True)}\n')
  writer = csv.DictWriter(text, COLUMNS, lineterminator='\n')
  writer.writeheader()
  writer.writerows(found)
  disk.write_text(path, text.getvalue())


def chart(
  runs: Mapping[str, Sequence[Mapping[str, Any]]], tested: str
) -> figure.Figure:
  """Draws test accuracy by epoch, and training accuracy as dashed lines.

  A run without tests has only the dashed line.

  Args:
    runs: results of `rows`, by name.
    tested: name of the test subset, for the title; '' for none.
  """
  page = figure.Figure(figsize=(6, 4))  # without pyplot, needs no display
  axes = page.subplots()
  for number, (name, found) in enumerate(runs.items()):
    for column, style, label in (
      ('test_accuracy', 'o-', name),
      ('accuracy', '--', f'{name}, training'),
    ):
      points = [
        (row['epoch'], 100 * row[column])
        for row in found
        if row[column] != NOT_TESTED
      ]
      if points:
        color = f'C{number}'
        axes.plot(
          *zip(*points, strict=True),
          style,
          color=color,
          markersize=3,
          label=label,
        )
  axes.set_title(f'accuracy, {tested or "training"}, %', loc='left')
  axes.set_xlabel('epoch')
  axes.locator_params(axis='x', integer=True)
  axes.grid(alpha=0.3)
  axes.legend(fontsize='small')
  page.tight_layout()
  return page
