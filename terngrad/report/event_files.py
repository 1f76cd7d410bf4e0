"""Reads event files with TensorBoard's reader."""

import os
import pathlib
from collections.abc import Collection
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from tensorboard.backend.event_processing import plugin_event_multiplexer

from terngrad import errors
from terngrad.report import event_values


class EventValue(NamedTuple):
  """One value of a tag.

  Attributes:
    wall_time: seconds since 1970.
    step: step of the run.
    value: a float (scalars), [[left, right, count], ...] (histograms) or a list
      of encoded images (images).
  """

  wall_time: float
  step: int
  value: Any


class EventRun(NamedTuple):
  """The events of one directory.

  Attributes:
    tags: by kind (one of `event_values.KINDS`), then by tag, the values.
    graph: a GraphDef as text, or None.
  """

  tags: dict[str, dict[str, list[EventValue]]]
  graph: str | None


def read(
  logdir: str | os.PathLike[str], purge_orphaned_data: bool = True
) -> dict[str, EventRun]:
  """Reads all values of every run below a directory.

  Args:
    logdir: path.
    purge_orphaned_data: True discards events that a run wrote before it was
      restarted from an earlier step.

  Returns:
    Runs by name: the path relative to logdir ('.' for logdir itself).

  Raises:
    errors.ConfigError: a file is damaged, so that what follows would be lost,
      or a value does not fit its plugin.
  """
  for path in sorted(pathlib.Path(logdir).rglob('*tfevents*')):
    _check_file(path)
  multiplexer = plugin_event_multiplexer.EventMultiplexer(
    # 0 keeps all values; by default the reader keeps a sample.
    tensor_size_guidance=dict.fromkeys(event_values.KINDS, 0),
    purge_orphaned_data=purge_orphaned_data,
  )
  multiplexer.AddRunsFromDirectory(str(logdir))
  multiplexer.Reload()
  return {name: _run(multiplexer, name) for name in sorted(multiplexer.Runs())}


def _check_file(path: pathlib.Path) -> None:
  """Refuses a file with a damaged record; TensorBoard would end there.

  The last record of a run that goes on may be incomplete.
  """
  records = tf.data.TFRecordDataset(os.fspath(path))
  try:
    records.reduce(np.int64(0), lambda count, _: count + 1)
  except tf.errors.DataLossError as error:
    # Before it TensorFlow names its operation.
    problem = error.message[error.message.find('}} ') + 3 :].split(' [')[0]
    if 'truncated' not in problem:
      raise errors.ConfigError(
        f'logdir: expected event files without damage, received {path}: '
        f'{problem}. Remove or repair it.'
      ) from error
    logging.warning('%s ends in an incomplete record', path)


def _run(
  multiplexer: plugin_event_multiplexer.EventMultiplexer, name: str
) -> EventRun:
  tags = {
    kind: {
      tag: [
        EventValue(
          event.wall_time, event.step, event_values.value_of(kind, tag, event)
        )
        for event in multiplexer.Tensors(name, tag)
      ]
      for tag in sorted(_tags_of(multiplexer, name, kind))
    }
    for kind in event_values.KINDS
  }
  try:
    graph = str(multiplexer.Graph(name))
  except ValueError:  # Raised if there is no graph.
    graph = None
  return EventRun(tags, graph)


def _tags_of(
  multiplexer: plugin_event_multiplexer.EventMultiplexer, name: str, kind: str
) -> Collection[str]:
  try:
    return multiplexer.PluginRunToTagToContent(kind).get(name, {})
  except KeyError:  # No run has values of this kind.
    return {}
