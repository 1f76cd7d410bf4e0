"""Reads event files with TensorBoard's reader."""

import os
import pathlib
from collections.abc import Callable
from collections.abc import Collection
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from tensorboard.backend.event_processing import plugin_event_multiplexer

from terngrad import errors

KINDS = ('scalars', 'histograms', 'images')


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
    tags: by kind (one of `KINDS`), then by tag, the values.
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
    tensor_size_guidance=dict.fromkeys(KINDS, 0),
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
    if 'truncated' not in error.message:
      raise errors.ConfigError(
        f'logdir: expected event files without damage, received {path}: '
        f'{error.message}. Remove or repair it.'
      ) from error
    logging.warning('%s ends in an incomplete record', path)


def _run(
  multiplexer: plugin_event_multiplexer.EventMultiplexer, name: str
) -> EventRun:
  tags = {
    kind: {
      tag: [
        EventValue(event.wall_time, event.step, _decode(kind, tag, event))
        for event in multiplexer.Tensors(name, tag)
      ]
      for tag in sorted(_tags_of(multiplexer, name, kind))
    }
    for kind in KINDS
  }
  try:
    graph = str(multiplexer.Graph(name))
  except ValueError:  # Raised if there is no graph.
    graph = None
  return EventRun(tags, graph)


def _decode(kind: str, tag: str, event: Any) -> Any:
  """Returns the value of an event.

  Raises:
    errors.ConfigError: its plugin has values of another shape or type.
  """
  array = tf.make_ndarray(event.tensor_proto)
  try:
    if array.ndim != _RANKS[kind]:
      raise ValueError(f'shape {list(array.shape)}')
    return _DECODE[kind](array)
  except (TypeError, ValueError) as error:
    raise errors.ConfigError(
      f'logdir: expected {kind} with the tag {tag} of step {event.step}, '
      f'received "{error}". Remove that event file, or repair it.'
    ) from error


def _tags_of(
  multiplexer: plugin_event_multiplexer.EventMultiplexer, name: str, kind: str
) -> Collection[str]:
  try:
    return multiplexer.PluginRunToTagToContent(kind).get(name, {})
  except KeyError:  # No run has values of this kind.
    return {}


# Dimensions of an array of values: histograms are [buckets, 3].
_RANKS = {'scalars': 0, 'histograms': 2, 'images': 1}
# Decodes an array of values. Image arrays start with width and height.
_DECODE: dict[str, Callable[[np.ndarray], Any]] = {
  'scalars': float,
  'histograms': lambda found: np.asarray(found, np.float64).tolist(),
  'images': lambda found: list(found)[2:],
}
