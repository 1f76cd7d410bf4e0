"""TensorBoard's event files, read with TensorBoard's own reader."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing import plugin_event_multiplexer

KINDS = ('scalars', 'histograms', 'images')


class Value(NamedTuple):
  """One value of a tag.

  Attributes:
    wall_time: seconds since 1970.
    step: of the run.
    value: a float (scalars), [[left, right, count], ...] (histograms) or a list
      of encoded images (images).
  """

  wall_time: float
  step: int
  value: object


class Run(NamedTuple):
  """The events of one folder.

  Attributes:
    tags: dict of kind, one of `KINDS`, to dict of tag to list of `Value`.
    graph: a GraphDef as text, or None.
  """

  tags: dict
  graph: str | None


def read(logdir, purge_orphaned_data=True):
  """Reads every run below a folder, with all its values.

  Args:
    logdir: path.
    purge_orphaned_data: leave out what a run wrote before it was set back to
      an earlier step.

  Returns:
    dict of the run's name, its path below logdir ('.' for itself), to `Run`.
  """
  multiplexer = plugin_event_multiplexer.EventMultiplexer(
    # 0: all of them; by default the reader keeps a sample.
    tensor_size_guidance=dict.fromkeys(KINDS, 0),
    purge_orphaned_data=purge_orphaned_data,
  )
  multiplexer.AddRunsFromDirectory(str(logdir))
  multiplexer.Reload()
  return {name: _run(multiplexer, name) for name in sorted(multiplexer.Runs())}


def _run(multiplexer, name):
  tags = {
    kind: {
      tag: [
        Value(event.wall_time, event.step, _DECODE[kind](event.tensor_proto))
        for event in multiplexer.Tensors(name, tag)
      ]
      for tag in sorted(_tags_of(multiplexer, name, kind))
    }
    for kind in KINDS
  }
  try:
    graph = str(multiplexer.Graph(name))
  except ValueError:  # It says so where there is none.
    graph = None
  return Run(tags, graph)


def _tags_of(multiplexer, name, kind):
  try:
    return multiplexer.PluginRunToTagToContent(kind).get(name, {})
  except KeyError:  # No run has this kind.
    return {}


def _scalar(proto):
  return float(tf.make_ndarray(proto))


def _histogram(proto):
  return np.asarray(tf.make_ndarray(proto), np.float64).tolist()


def _images(proto):
  # Width and height stand before the images.
  return list(tf.make_ndarray(proto))[2:]


_DECODE = {'scalars': _scalar, 'histograms': _histogram, 'images': _images}
