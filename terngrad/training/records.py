"""The one writer of records: TensorBoard events and `metrics.jsonl`."""

import json
import math
import os

import numpy as np
import tensorflow as tf

from slim.datasets.records import disk

FILE_NAME = 'metrics.jsonl'

_BUCKETS = 30
_HISTOGRAM = tf.compat.v1.SummaryMetadata(
  plugin_data={'plugin_name': 'histograms'}
)


class Recorder:
  """Writes what a run measures, to TensorBoard and as lines of JSON.

  A line is one flat object with a 'step'. Numbers that are not finite are
  written as null.
  """

  def __init__(self, directory, step=None):
    """Opens the records of a folder that exists.

    Args:
      directory: path.
      step: the run continues from this step: later lines are dropped, so that
        no step stands twice. None keeps all.
    """
    self._path = os.path.join(directory, FILE_NAME)
    lines = [
      record
      for record in read(directory)
      if step is None or record['step'] <= step
    ]
    disk.write_text(self._path, ''.join(_line(record) for record in lines))
    # A step may have several lines.
    self.last = {k: v for record in lines for k, v in record.items()}
    self._file = open(self._path, 'a', encoding='utf-8')  # closed by close()
    self._events = tf.summary.create_file_writer(os.fspath(directory))

  def scalars(self, step, values, tags=None):
    """Writes numbers of one step.

    Args:
      step: integer.
      values: dict of name to number; one line of JSON.
      tags: dict of name to the TensorBoard tag, where it differs.
    """
    self._file.write(_line({'step': step, **values}))
    self._file.flush()
    with self._events.as_default(step=step):
      for name, value in values.items():
        tf.summary.scalar((tags or {}).get(name, name), value)

  def event(self, step, tag, value):
    """Writes a number for TensorBoard only."""
    with self._events.as_default(step=step):
      tf.summary.scalar(tag, value)

  def histograms(self, step, tensors):
    """Writes the distributions of tensors, a dict of tag to tensor.

    tf.summary.histogram needs 240 bytes an element, 25 GB for the first dense
    layer of VGG.
    """
    with self._events.as_default(step=step):
      for tag, tensor in tensors.items():
        tf.summary.write(tag, buckets(tensor), metadata=_HISTOGRAM)

  def flush(self):
    """Makes all that was written visible to readers."""
    self._events.flush()

  def close(self):
    """Flushes and closes both files."""
    self._events.close()
    self._file.close()


def buckets(tensor):
  """Counts a tensor's elements in buckets of equal width.

  Args:
    tensor: any shape, of numbers. Those that are not finite are left out.

  Returns:
    float64 [30, 3], (left edge, right edge, count) in TensorBoard's form: all
    zero where there are no elements; where all are the same, that is every
    edge and the last bucket holds them.
  """
  values = tf.reshape(tf.cast(tensor, tf.float32), [-1]).numpy()
  finite = np.isfinite(values)
  if not finite.all():
    values = values[finite]
  if not values.size:
    return np.zeros([_BUCKETS, 3])
  if values.min() == values.max():
    counts = np.append(np.zeros(_BUCKETS - 1), values.size)
    edges = np.full(_BUCKETS + 1, values[0], np.float64)
  else:
    limits = (float(values.min()), float(values.max()))
    counts, edges = np.histogram(values, _BUCKETS, limits)
  return np.stack([edges[:-1], edges[1:], counts], axis=1).astype(np.float64)


def read(directory):
  """The records of a folder, in order; a torn last line is left out.

  Args:
    directory: path.

  Returns:
    List of dict, each with an integer 'step'.
  """
  path = os.path.join(directory, FILE_NAME)
  if not os.path.exists(path):
    return []
  found = []
  with open(path, encoding='utf-8') as file:
    for line in file:
      try:
        record = json.loads(line)
      except ValueError:
        continue
      if isinstance(record, dict) and isinstance(record.get('step'), int):
        found.append(record)
  return found


def _line(record):
  return json.dumps({k: _number(v) for k, v in record.items()}) + '\n'


def _number(value):
  infinite = isinstance(value, float) and not math.isfinite(value)
  return None if infinite else value
