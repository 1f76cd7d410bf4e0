"""The one writer of records: TensorBoard events and `metrics.jsonl`.

A line of `metrics.jsonl` is one flat object of numbers with a 'step', and last
the 'crc32' of the line as it is without that. Lines of before there were
checksums are read too.
"""

import contextlib
import errno
import json
import math
import os
import pathlib
import re
import zlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from slim.datasets.records import disk
from terngrad import errors

FILE_NAME = 'metrics.jsonl'

_CHECKED = re.compile(rb'(.*), "crc32": "([0-9a-f]{8})"}')
_BUCKETS = 30
_HISTOGRAM = tf.compat.v1.SummaryMetadata(
  plugin_data={'plugin_name': 'histograms'}
)


class Recorder:
  """Writes what a run measures, to TensorBoard and as lines of JSON.

  Numbers that are not finite are written as null.

  Attributes:
    last: dict of name to the newest number that was read.
    cut: lines for people, on what was there and is not kept.
  """

  def __init__(self, directory, step=None):
    """Opens the records of a folder that exists.

    Args:
      directory: path.
      step: the run continues from this step: later lines are dropped, so that
        no step stands twice. None keeps all.
    """
    self._folder = pathlib.Path(directory)
    self._path = path = self._folder / FILE_NAME
    read_lines = _read(path)
    lines = [
      record
      for record in read_lines.records
      if step is None or record['step'] <= step
    ]
    self.cut = read_lines.remarks
    if dropped := len(read_lines.records) - len(lines):
      self.cut += [f'{path}: dropped {dropped} lines of steps after {step}']
    disk.write_text(path, ''.join(_line(record) for record in lines))
    # A step may have several lines.
    self.last = {k: v for record in lines for k, v in record.items()}
    self._file = open(path, 'a', encoding='utf-8')  # closed by close()
    self._events = tf.summary.create_file_writer(os.fspath(directory))

  def scalars(self, step, values, tags=None):
    """Writes numbers of one step.

    Args:
      step: integer.
      values: dict of name to number; one line of JSON.
      tags: dict of name to the TensorBoard tag, where it differs.

    Raises:
      errors.TrainingError: the file does not have its name any more.
    """
    self._check_name()
    self._file.write(_line({'step': step, **values}))
    self._file.flush()
    with self._writing(step):
      for name, value in values.items():
        tf.summary.scalar((tags or {}).get(name, name), value)

  def _check_name(self):
    """Raises `errors.TrainingError` where readers do not find what is written.

    Checkpoints, which are opened by their names, would be in another folder
    than the records, if not in another run.
    """
    try:
      there = os.stat(self._path)
    except (FileNotFoundError, NotADirectoryError):
      received = 'none'
    else:
      if os.path.samestat(there, os.fstat(self._file.fileno())):
        return
      received = 'another one'
    raise errors.TrainingError(
      f'{self._path}: expected the file that this run writes, received '
      f'{received}: it or its folder was removed or renamed while the run was '
      'at work, which stops. Give the folder its name back, or give its new '
      'one; the same command then continues from the last checkpoint in it.'
    )

  def event(self, step, tag, value):
    """Writes a number for TensorBoard only."""
    with self._writing(step):
      tf.summary.scalar(tag, value)

  def histograms(self, step, tensors):
    """Writes the distributions of tensors, a dict of tag to tensor.

    tf.summary.histogram needs 240 bytes an element, 25 GB for the first dense
    layer of VGG.
    """
    counted = {tag: buckets(tensor) for tag, tensor in tensors.items()}
    with self._writing(step):
      for tag, rows in counted.items():
        tf.summary.write(tag, rows, metadata=_HISTOGRAM)

  @contextlib.contextmanager
  def _writing(self, step):
    """Where events of a step are written."""
    with _as_os_error(), self._events.as_default(step=step):
      yield

  def flush(self):
    """Makes all that was written visible to readers."""
    with _as_os_error():
      self._events.flush()

  def sync(self):
    """Brings all that was written to the disk, so that a power cut keeps it.

    Raises:
      errors.TrainingError: the file does not have its name any more.
    """
    self._check_name()
    self.flush()
    os.fsync(self._file.fileno())
    for path in self._folder.glob('events.out.tfevents.*'):
      disk.sync(path)

  def close(self):
    """Flushes and closes both files."""
    with contextlib.closing(self._file), _as_os_error():
      self._events.close()


@contextlib.contextmanager
def _as_os_error():
  """TensorFlow's errors of the file of events as those of other files."""
  try:
    yield
  except tf.errors.OpError as error:
    is_full = isinstance(error, tf.errors.ResourceExhaustedError)
    number = errno.ENOSPC if is_full else errno.EIO
    raise OSError(number, os.strerror(number)) from error


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


class _Lines(NamedTuple):
  """What a file of records holds.

  Attributes:
    records: list of dict, each with an integer 'step', in order.
    remarks: list of lines for people, on what is damaged.
  """

  records: list
  remarks: list


def read(directory):
  """The records of a folder, in order; damaged lines are left out.

  Args:
    directory: path.

  Returns:
    List of dict of name to number or None, each with an integer 'step'.
  """
  found = _read(pathlib.Path(directory, FILE_NAME))
  for remark in found.remarks:
    logging.warning('%s', remark)
  return found.records


def _read(path):
  """The `_Lines` of a file, which need not exist."""
  if not path.exists():
    return _Lines([], [])
  found, damaged = [], []
  with open(path, 'rb') as file:
    for number, line in enumerate(file, start=1):
      record = _record(line.rstrip(b'\n'))
      if record is None:
        damaged.append(number)
      else:
        found.append(record)
  if not damaged:
    return _Lines(found, [])
  return _Lines(
    found,
    [
      f'{path}: left out {len(damaged)} damaged or torn lines, the first is '
      f'line {damaged[0]}'
    ],
  )


def _record(line):
  """What a line holds; None where it is damaged."""
  checked = _CHECKED.fullmatch(line)
  if checked:
    line = checked[1] + b'}'
    if int(checked[2], 16) != zlib.crc32(line):
      return None
  try:
    record = json.loads(line)
  except (ValueError, RecursionError):
    return None
  if not isinstance(record, dict) or not isinstance(record.get('step'), int):
    return None
  # Text is a checksum that is no longer one.
  is_whole = all(
    v is None or isinstance(v, int | float) for v in record.values()
  )
  return record if is_whole else None


def _line(record):
  text = json.dumps({k: _number(v) for k, v in record.items()})
  return f'{text[:-1]}, "crc32": "{zlib.crc32(text.encode()):08x}"}}\n'


def _number(value):
  infinite = isinstance(value, float) and not math.isfinite(value)
  return None if infinite else value
