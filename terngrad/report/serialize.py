"""Converts event files to JSON, CSV and PNG for use without TensorBoard."""

import collections
import csv
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from slim.datasets.records import disk
from terngrad.report import event_files
from terngrad.report import event_values

_LONGEST = 100  # maximum characters of a tag in a file name


def write(
  runs: Mapping[str, event_files.EventRun], target: str | os.PathLike[str]
) -> int:
  """Writes runs into a directory.

  `runs.json` lists the files of each tag for every run. Scalars are tables with
  the columns wall_time, step and value, as CSV and as JSON. Histograms are JSON
  with buckets [left, right, count]. Images are written as they were encoded. A
  graph is a GraphDef as text. Values that are not finite are null.

  Args:
    runs: from `event_files.read`.
    target: path of the directory, which is created.

  Returns:
    Number of files.
  """
  root = pathlib.Path(target)
  index: dict[str, dict[str, Any]] = {}
  for name, run in runs.items():
    folder = pathlib.Path('data', file_name(name))
    files = index[name] = {kind: {} for kind in event_values.KINDS}
    for kind, tags in run.tags.items():
      (root / folder / kind).mkdir(parents=True, exist_ok=True)
      for tag, values in tags.items():
        stem = folder / kind / file_name(tag)
        files[kind][tag] = _WRITE[kind](root, stem, values)
    files['graph'] = _write_graph(root, folder, run.graph)
  _dump(root / 'runs.json', index)
  return sum(path.is_file() for path in root.rglob('*'))


def replace(
  runs: Mapping[str, event_files.EventRun], target: str | os.PathLike[str]
) -> int:
  """Writes runs into a directory, which is complete when it appears.

  An existing one is first renamed, so a process that is killed then leaves the
  old and the new one under hidden names.

  Args:
    runs: from `event_files.read`.
    target: path of the directory, or of a link to it; an existing one is
      replaced.

  Returns:
    Number of files.
  """
  target = pathlib.Path(target).resolve()
  name = f'.{target.name}.{uuid.uuid4().hex[:8]}'
  new, old = target.with_name(f'{name}.new'), target.with_name(f'{name}.old')
  with disk.create_folder(new) as made:
    count = write(runs, made)
  if target.exists():
    target.rename(old)
  disk.put(new, target)
  if old.exists():
    shutil.rmtree(old)
  return count


def file_name(tag: str) -> str:
  """Returns a file name for a tag: distinct for each tag, without a path.

  Examples:
    >>> file_name('conv1/kernel')
    'conv1_kernel-d0c5c030'
    >>> file_name('loss')
    'loss'
  """
  clean = re.sub(r'[^A-Za-z0-9_-]', '_', tag)[:_LONGEST]
  if clean == tag:
    return tag or '_'
  return f'{clean}-{hashlib.sha256(tag.encode()).hexdigest()[:8]}'


def _write_scalars(
  root: pathlib.Path,
  stem: pathlib.Path,
  values: Sequence[event_files.EventValue],
) -> list[str]:
  rows = [value._replace(value=_finite(value.value)) for value in values]
  with open(root / f'{stem}.csv', 'w', encoding='utf-8', newline='') as file:
    csv.writer(file).writerows([event_files.EventValue._fields, *rows])
  _dump(root / f'{stem}.json', [row._asdict() for row in rows])
  return [f'{stem}.csv', f'{stem}.json']


def _write_histograms(
  root: pathlib.Path,
  stem: pathlib.Path,
  values: Sequence[event_files.EventValue],
) -> list[str]:
  _dump(
    root / f'{stem}.json',
    [
      {
        'wall_time': v.wall_time,
        'step': v.step,
        'buckets': [[_finite(x) for x in bucket] for bucket in v.value],
      }
      for v in values
    ],
  )
  return [f'{stem}.json']


def _write_images(
  root: pathlib.Path,
  stem: pathlib.Path,
  values: Sequence[event_files.EventValue],
) -> list[str]:
  (root / stem).mkdir(exist_ok=True)
  written = []
  seen = collections.Counter[int]()
  for v in values:
    # Events of a step that a run repeated.
    again = f'_again_{seen[v.step]}' if seen[v.step] else ''
    seen[v.step] += 1
    for number, content in enumerate(v.value):
      path = stem / f'step_{v.step}{again}_{number}.png'
      (root / path).write_bytes(content)
      written.append(str(path))
  return written


def _write_graph(
  root: pathlib.Path, folder: pathlib.Path, graph: str | None
) -> str | None:
  if graph is None:
    return None
  path = folder / 'graph.pbtxt'
  (root / path).write_text(graph, encoding='utf-8')
  return str(path)


_WRITE: dict[
  str,
  Callable[
    [pathlib.Path, pathlib.Path, Sequence[event_files.EventValue]], list[str]
  ],
] = {
  'scalars': _write_scalars,
  'histograms': _write_histograms,
  'images': _write_images,
}


def _finite(value: float) -> float | None:
  return value if math.isfinite(value) else None


def _dump(path: pathlib.Path, content: Any) -> None:
  path.write_text(json.dumps(content, indent=1) + '\n', encoding='utf-8')
