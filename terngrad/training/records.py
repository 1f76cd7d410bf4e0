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
from collections.abc import Iterator
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from slim.datasets.records import disk
from terngrad import errors
from terngrad.training import metrics

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
    last: the newest number of each name that was read.
    cut: lines for people, on what was there and is not kept.
  """

  def __init__(
    self, directory: str | os.PathLike[str], step: int | None = None
  ) -> None:
    """Opens the records of a folder that exists.

    Args:
      directory: its path.
      step: the run continues from this step: later lines are dropped, so that
        no step stands twice. None keeps all.
    """
    self._path = path = pathlib.Path(directory, FILE_NAME)
    found, self.cut = _read(path)
    lines = [r for r in found if step is None or r['step'] <= step]
    if dropped := len(found) - len(lines):
      self.cut += [f'{path}: dropped {dropped} lines of steps after {step}']
    disk.write_text(path, ''.join(map(_line, lines)))
    # A step may have several lines.
    self.last = {k: v for record in lines for k, v in record.items()}
    self._file = open(path, 'a', encoding='utf-8')  # closed by close()
    self._events = tf.summary.create_file_writer(os.fspath(directory))

  def scalars(
    self,
    step: int,
    values: Mapping[str, float],
    tags: Mapping[str, str] | None = None,
  ) -> None:
    """Writes numbers of one step.

    Args:
      step: of the numbers.
      values: by name; one line of JSON.
      tags: the TensorBoard tags of names, where they differ.

    Raises:
      errors.TrainingError: the file does not have its name any more.
    """
    self._check_name()
    self._file.write(_line({'step': step, **values}))
    self._file.flush()
    with self._writing(step):
      for name, value in values.items():
        tf.summary.scalar((tags or {}).get(name, name), value)

  def _check_name(self) -> None:
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

  def event(self, step: int, tag: str, value: float) -> None:
    """Writes a number for TensorBoard only."""
    with self._writing(step):
      tf.summary.scalar(tag, value)

  def histograms(
    self, step: int, tensors: Mapping[str, tf.Tensor | tf.Variable]
  ) -> None:
    """Writes the distributions of tensors, by tag.

    tf.summary.histogram needs 240 bytes an element, 25 GB for the first dense
    layer of VGG.
    """
    counted = {tag: buckets(tensor) for tag, tensor in tensors.items()}
    with self._writing(step):
      for tag, rows in counted.items():
        tf.summary.write(tag, rows, metadata=_HISTOGRAM)

  @contextlib.contextmanager
  def _writing(self, step: int) -> Iterator[None]:
    """Where events of a step are written."""
    with _as_os_error(), self._events.as_default(step=step):
      yield

  def flush(self) -> None:
    """Makes all that was written visible to readers."""
    with _as_os_error():
      self._events.flush()

  def sync(self) -> None:
    """Brings all that was written to the disk, so that a power cut keeps it.

    Raises:
      errors.TrainingError: the file does not have its name any more.
    """
    self._check_name()
    self.flush()
    os.fsync(self._file.fileno())
    for path in self._path.parent.glob('events.out.tfevents.*'):
      disk.sync(path)

  def close(self) -> None:
    """Flushes and closes both files."""
    with contextlib.closing(self._file), _as_os_error():
      self._events.close()


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
  """TensorFlow's errors of the file of events as those of other files."""
  try:
    yield
  except tf.errors.OpError as error:
    is_full = isinstance(error, tf.errors.ResourceExhaustedError)
    number = errno.ENOSPC if is_full else errno.EIO
    raise OSError(number, os.strerror(number)) from error


def buckets(tensor: tf.Tensor | tf.Variable) -> np.ndarray:
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
  limits = float(values.min()), float(values.max())
  if limits[0] == limits[1]:
    counts = np.append(np.zeros(_BUCKETS - 1), values.size)
    edges = np.full(_BUCKETS + 1, limits[0])
  else:
    counts, edges = np.histogram(values, _BUCKETS, limits)
  return np.stack([edges[:-1], edges[1:], counts], axis=1).astype(np.float64)


def read(directory: str | os.PathLike[str]) -> list[metrics.Record]:
  """The records of a folder, in order; damaged lines are left out.

  Returns:
    Each has an integer 'step'.
  """
  found, remarks = _read(pathlib.Path(directory, FILE_NAME))
  for remark in remarks:
    logging.warning('%s', remark)
  return found


def _read(path: pathlib.Path) -> tuple[list[metrics.Record], list[str]]:
  """(the records of a file, which need not exist; remarks on damaged lines)."""
  if not path.exists():
    return [], []
  with open(path, 'rb') as file:
    lines = [_record(line.rstrip(b'\n')) for line in file]
  damaged = [number for number, one in enumerate(lines, start=1) if one is None]
  remarks = [
    f'{path}: left out {len(damaged)} damaged or torn lines, the first is line '
    f'{first}'
    for first in damaged[:1]
  ]
  return [one for one in lines if one is not None], remarks


def _record(line: bytes) -> metrics.Record | None:
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
  is_whole = (
    isinstance(record, dict)
    and isinstance(record.get('step'), int)
    # Text is a checksum that is no longer one.
    and all(v is None or isinstance(v, int | float) for v in record.values())
  )
  return record if is_whole else None


def _line(record: metrics.Record) -> str:
  known = {
    name: None if isinstance(v, float) and not math.isfinite(v) else v
    for name, v in record.items()
  }
  text = json.dumps(known)
  return f'{text[:-1]}, "crc32": "{zlib.crc32(text.encode()):08x}"}}\n'
