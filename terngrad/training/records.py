"""Writes and reads records: `metrics.jsonl`, TensorBoard events, trackers.

A line of `metrics.jsonl` is one flat JSON object of numbers with the key
'step'. Its last key is 'crc32', the checksum of the line without that key.
Older lines without a checksum are read too.
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
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf import message
from tensorflow.core.util import event_pb2
from tensorflow.python.ops import summary_ops_v2

from slim.datasets.records import disk
from terngrad import errors
from terngrad.tracking import background
from terngrad.tracking import trackers
from terngrad.training import metrics

FILE_NAME = 'metrics.jsonl'
# Bytes of the largest graph to write.
MAX_GRAPH = 2**23

_CHECKED = re.compile(rb'(.*), "crc32": "([0-9a-f]{8})"}')
_BUCKETS = 30
_EVENT_FILES = 'events.out.tfevents.*'
# A graph follows the version of the file.
_FIRST_EVENTS = 3
_HISTOGRAM = tf.compat.v1.SummaryMetadata(
  plugin_data={'plugin_name': 'histograms'}
)


class Recorder:
  """Writes a run's metrics to `metrics.jsonl`, TensorBoard and trackers.

  The JSON lines hold null for NaN and infinity.

  Attributes:
    last: newest value of each name in the existing records.
    remarks: log lines that report dropped and damaged records.
  """

  def __init__(
    self,
    directory: str | os.PathLike[str],
    step: int | None = None,
    log_to: Sequence[str] = (trackers.TENSORBOARD,),
    options: Mapping[str, object] | None = None,
  ) -> None:
    """Opens the records of an existing folder.

    Args:
      directory: path of the folder.
      step: step that the run resumes from. Lines of later steps are dropped, so
        that no step is recorded twice. None drops nothing.
      log_to: names of `trackers.NAMES`, whose packages are installed.
      options: options of the run by name, for trackers.
    """
    self._path = path = pathlib.Path(directory, FILE_NAME)
    found, self.remarks = _read(path)
    lines = [r for r in found if step is None or r['step'] <= step]
    if dropped := len(found) - len(lines):
      self.remarks += [f'{path}: dropped {dropped} lines of steps after {step}']
    disk.write_text(path, ''.join(map(_line, lines)))
    # A step may have several lines, so this merges all of them.
    self.last = {k: v for record in lines for k, v in record.items()}
    self._file = open(path, 'a', encoding='utf-8')  # closed by close()
    self._has_events = trackers.TENSORBOARD in log_to
    if self._has_events:
      self._events = tf.summary.create_file_writer(os.fspath(directory))
    else:
      self._events = tf.summary.create_noop_writer()
    if self._has_events and step is not None:
      self._drop_events_after(step)
    self._trackers = background.start(log_to, directory, options or {})

  def scalars(
    self,
    step: int,
    values: Mapping[str, float],
    tags: Mapping[str, str] | None = None,
  ) -> None:
    """Writes numbers of one step: one JSON line, and to everything else.

    `tags` holds the TensorBoard tags that differ from the name, by name.

    Raises:
      errors.TrainingError: the file was removed or renamed.
    """
    self._check_name()
    self._file.write(_line({'step': step, **values}))
    self._file.flush()
    with self._writing(step):
      for name, value in values.items():
        tf.summary.scalar((tags or {}).get(name, name), value)
    for tracker in self._trackers:
      tracker.log(step, values)

  def _check_name(self) -> None:
    """Raises `errors.TrainingError` if the file was removed or renamed.

    Checkpoints are opened by name. They would go to another folder than the
    records, perhaps to that of another run.
    """
    try:
      status = os.stat(self._path)
    except (FileNotFoundError, NotADirectoryError):
      received = 'none'
    else:
      if os.path.samestat(status, os.fstat(self._file.fileno())):
        return
      received = 'another one'
    raise errors.TrainingError(
      f'{self._path}: expected the file that this run writes, received '
      f'{received}: the file or its folder was removed or renamed during the '
      'run, so the run stops. Rename the folder back, or set the flag to its '
      'new name; the same command then continues from its last checkpoint.'
    )

  def _drop_events_after(self, step: int) -> None:
    """Makes readers of the events drop later steps that were written before."""
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    # Of this step and later ones nothing counts.
    event = event_pb2.Event(step=step + 1, session_log=start)
    with self._writing(step):
      # Readers take the first one that they find for the start of a run.
      for _ in range(2):
        summary_ops_v2.import_event(event.SerializeToString())

  def event(self, step: int, tag: str, value: float) -> None:
    """Writes a number to TensorBoard only."""
    with self._writing(step):
      tf.summary.scalar(tag, value)

  def graph(self, graph: tf.compat.v1.GraphDef) -> None:
    """Writes a graph of at most `MAX_GRAPH` bytes to TensorBoard."""
    with self._writing(0):
      tf.summary.graph(graph)

  def histograms(
    self, step: int, tensors: Mapping[str, tf.Tensor | tf.Variable]
  ) -> None:
    """Writes histograms of tensors to TensorBoard, by tag.

    Does nothing without TensorBoard. `tf.summary.histogram` is not used: it
    needs 240 bytes per element, 25 GB for the first dense layer of VGG.
    """
    if not self._has_events:
      return
    counted = {tag: buckets(tensor) for tag, tensor in tensors.items()}
    with self._writing(step):
      for tag, rows in counted.items():
        tf.summary.write(tag, rows, metadata=_HISTOGRAM)

  @contextlib.contextmanager
  def _writing(self, step: int) -> Iterator[None]:
    """Context in which TensorBoard events of a step are written."""
    with _as_os_error(), self._events.as_default(step=step):
      yield

  def flush(self) -> None:
    """Makes all written events visible to readers."""
    with _as_os_error():
      self._events.flush()

  def sync(self) -> None:
    """Syncs all records to the disk, so that they survive a power cut.

    Raises:
      errors.TrainingError: the file was removed or renamed.
    """
    self._check_name()
    self.flush()
    os.fsync(self._file.fileno())
    for path in self._path.parent.glob(_EVENT_FILES):
      disk.sync(path)

  def close(self, failed: bool = False) -> None:
    """Flushes and closes the files; trackers learn whether the run failed."""
    try:
      with contextlib.closing(self._file), _as_os_error():
        self._events.close()
    finally:
      background.close(self._trackers, failed)


def has_graph(directory: str | os.PathLike[str]) -> bool:
  """Returns whether an event file of a folder begins with a graph.

  Only the first events of each file are read; the others may be large.
  """
  for path in sorted(pathlib.Path(directory).glob(_EVENT_FILES)):
    events = tf.data.TFRecordDataset(os.fspath(path)).take(_FIRST_EVENTS)
    # A run that was killed can leave a file that ends within an event.
    with contextlib.suppress(message.DecodeError, tf.errors.DataLossError):
      for data in events.as_numpy_iterator():
        if tf.compat.v1.Event.FromString(data).graph_def:
          return True
  return False


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
  """Context that raises TensorFlow's file errors as `OSError`."""
  try:
    yield
  except tf.errors.OpError as error:
    is_full = isinstance(error, tf.errors.ResourceExhaustedError)
    number = errno.ENOSPC if is_full else errno.EIO
    raise OSError(number, os.strerror(number)) from error


def buckets(tensor: tf.Tensor | tf.Variable) -> np.ndarray:
  """Counts a tensor's elements in buckets of equal width.

  Args:
    tensor: numbers of any shape. NaN and infinity are not counted.

  Returns:
    float64 [30, 3], rows of (left edge, right edge, count), TensorBoard's form.
    All zero without elements. If all elements are equal, all edges have this
    value and the last bucket holds all elements.
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
    spacing = float(np.spacing(np.abs(values).max()))
    extent = limits[1] - limits[0]
    if not 2 * _BUCKETS * spacing <= extent <= float(tf.float32.max):
      # Float32 has no numbers for all edges, or for the extent.
      values = values.astype(np.float64)
    counts, edges = np.histogram(values, _BUCKETS, limits)
  return np.stack([edges[:-1], edges[1:], counts], axis=1).astype(np.float64)


def read(directory: str | os.PathLike[str]) -> list[metrics.Record]:
  """Reads the records of a folder in order, without damaged lines.

  A warning reports damaged lines.

  Returns:
    Records, each with an integer 'step'; [] if there is no file.
  """
  found, remarks = _read(pathlib.Path(directory, FILE_NAME))
  for remark in remarks:
    logging.warning('%s', remark)
  return found


def _read(path: pathlib.Path) -> tuple[list[metrics.Record], list[str]]:
  """Reads a file, if it exists: (records, remarks on damaged lines)."""
  if not path.exists():
    return [], []
  with open(path, 'rb') as file:
    lines = [_record(line.rstrip(b'\n')) for line in file]
  damaged = [number for number, one in enumerate(lines, start=1) if one is None]
  remarks = [
    f'{path}: skipped {len(damaged)} damaged or incomplete lines, the first is '
    f'line {first}'
    for first in damaged[:1]
  ]
  return [one for one in lines if one is not None], remarks


def _record(line: bytes) -> metrics.Record | None:
  """Parses a line; returns None if it is damaged."""
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
    # A value that is text is a damaged 'crc32' key.
    and all(v is None or _is_number(v) for v in record.values())
  )
  return record if is_whole else None


def _is_number(value: object) -> bool:
  """Returns whether a value is a number that no conversion refuses."""
  return isinstance(value, float) or (
    isinstance(value, int) and abs(value) < 2**63
  )


def _line(record: metrics.Record) -> str:
  known = {
    name: None if isinstance(v, float) and not math.isfinite(v) else v
    for name, v in record.items()
  }
  text = json.dumps(known)
  return f'{text[:-1]}, "crc32": "{zlib.crc32(text.encode()):08x}"}}\n'
