"""Reads event files with TensorBoard's reader."""

import os
from collections.abc import Callable
from collections.abc import Collection
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing import plugin_event_multiplexer

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
  """
  multiplexer = plugin_event_multiplexer.EventMultiplexer(
    # 0 keeps all values; by default the reader keeps a sample.
    tensor_size_guidance=dict.fromkeys(KINDS, 0),
    purge_orphaned_data=purge_orphaned_data,
  )
  multiplexer.AddRunsFromDirectory(str(logdir))
  multiplexer.Reload()
  return {name: _run(multiplexer, name) for name in sorted(multiplexer.Runs())}


def _run(
  multiplexer: plugin_event_multiplexer.EventMultiplexer, name: str
) -> EventRun:
  tags = {
    kind: {
      tag: [
        EventValue(
          event.wall_time,
          event.step,
          _DECODE[kind](tf.make_ndarray(event.tensor_proto)),
        )
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


def _tags_of(
  multiplexer: plugin_event_multiplexer.EventMultiplexer, name: str, kind: str
) -> Collection[str]:
  try:
    return multiplexer.PluginRunToTagToContent(kind).get(name, {})
  except KeyError:  # No run has values of this kind.
    return {}


# Decodes an array of values. Image arrays start with width and height.
_DECODE: dict[str, Callable[[np.ndarray], Any]] = {
  'scalars': float,
  'histograms': lambda found: np.asarray(found, np.float64).tolist(),
  'images': lambda found: list(found)[2:],
}
