"""Writes shards one after the other, of examples that threads encode.

Threads, because what costs time (decoding and encoding images, checksums,
writing) happens outside of Python's lock. A finished shard lies in the place
with a note beside it, by which an interrupted run finds it again.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
from collections import abc
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from slim import errors
from slim.datasets.records import disk
from slim.datasets.records import manifest
from slim.datasets.records import progress
from slim.datasets.records import shard_manifest

_FRAMING_BYTES = 16  # of a record: its length, and two checksums
_CHUNKS_AHEAD = 4  # a thread; bounds the memory for encoded examples


class Unreadable(NamedTuple):
  """Stands for an example that cannot be made.

  Attributes:
    name: of what cannot be read.
    reason: why.
  """

  name: str
  reason: str

  def __str__(self) -> str:
    """Returns 'name: reason'."""
    return f'{self.name}: {self.reason}'


def refusal(
  source: str, unreadable: abc.Sequence[Unreadable]
) -> errors.DataError:
  """The error that names all that is unreadable.

  Args:
    source: where the examples come from, for people.
    unreadable: at least one.
  """
  listed = '\n  '.join(map(str, unreadable))
  return errors.DataError(
    f'{source}: expected readable images; received {len(unreadable)} '
    f'that are not:\n  {listed}\nRepair or remove them and run this again, '
    'or leave them out with --skip_corrupt.'
  )


class Job(NamedTuple):
  """A shard to write.

  Attributes:
    name: of its file.
    items: one an example.
  """

  name: str
  items: abc.Sequence[Any]


class Note(NamedTuple):
  """What is known of a finished shard.

  Attributes:
    shard: its size and checksum.
    skipped: what was left out as unreadable, 'name: reason'.
  """

  shard: manifest.Shard
  skipped: tuple[str, ...]


class Encoder(NamedTuple):
  """How examples are made.

  Attributes:
    encode: makes of some items as many serialized tf.train.Example, or
      Unreadable. Runs in several threads.
    together: items that `encode` gets at once.
    num_threads: at least 1.
    skip_unreadable: leave out what is unreadable. Else a shard with such an
      item is not finished.
  """

  encode: abc.Callable[[abc.Sequence[Any]], abc.Iterable[bytes | Unreadable]]
  together: int
  num_threads: int
  skip_unreadable: bool


def finished(
  place: pathlib.Path, folder: pathlib.Path, names: abc.Iterable[str]
) -> dict[str, Note]:
  """Finds the shards that an earlier run finished.

  Args:
    place: where it left them.
    folder: where it may have moved some of them already.
    names: of the shards to look for.

  Returns:
    Notes by name, of the shards that are there with their checksums.
  """
  found = {}
  for name in names:
    try:
      content = json.loads(_note_path(place, name).read_text(encoding='utf-8'))
      note = Note(manifest.Shard(**content['shard']), tuple(content['skipped']))
    except (OSError, ValueError, KeyError, TypeError):
      continue
    if any(
      shard_manifest.has_content(there, note.shard) for there in (place, folder)
    ):
      found[name] = note
  return found


def write(
  place: pathlib.Path, jobs: abc.Sequence[Job], encoder: Encoder
) -> tuple[dict[str, Note], list[Unreadable]]:
  """Writes shards into the place, each with a note.

  All items are encoded even where some are unreadable, to name them all.

  Args:
    place: receives them.
    jobs: the shards.
    encoder: makes the examples.

  Returns:
    Notes of what was finished, by name, and what is unreadable.

  Raises:
    slim.errors.DataError: a shard would have no record.
    OSError, tf.errors.OpError: a shard cannot be written.
  """
  pool = concurrent.futures.ThreadPoolExecutor(encoder.num_threads)
  total = sum(len(job.items) for job in jobs)
  unreadable = []
  finishing = []
  try:
    with progress.Progress(total=total, unit=' images') as bar:
      for job, chunks in _encoded(pool, jobs, encoder):
        writing = _ShardFile(place, job.name, encoder.skip_unreadable)
        for chunk in chunks:
          writing.add(chunk)
          bar.update(len(chunk))
        unreadable += writing.unreadable
        if writing.close():
          # Hashing and waiting for the disk need not hold up the next shard.
          finishing.append(pool.submit(writing.finish))
      notes = [future.result() for future in finishing]
  finally:
    pool.shutdown(cancel_futures=True)
    for left in place.glob('*.part'):
      left.unlink()
  return {note.shard.file: note for note in notes}, unreadable


class _ShardFile:
  """A shard while it is written."""

  def __init__(self, place: pathlib.Path, name: str, skip: bool):
    self.unreadable: list[Unreadable] = []
    self._place = place
    self._name = name
    self._skip = skip
    self._path = place / f'{name}.part'
    self._writer = tf.io.TFRecordWriter(os.fspath(self._path))
    self._examples = self._bytes = 0

  def add(self, payloads: abc.Iterable[bytes | Unreadable]) -> None:
    for payload in payloads:
      if isinstance(payload, Unreadable):
        self.unreadable.append(payload)
        continue
      self._writer.write(payload)
      self._examples += 1
      self._bytes += len(payload) + _FRAMING_BYTES

  def close(self) -> bool:
    """Closes the file; returns whether it is to be finished."""
    self._writer.close()
    if self.unreadable and not self._skip:
      self._path.unlink()
      return False
    if not self._examples:
      raise errors.DataError(
        f'{self._name}: expected at least one readable image; received '
        f'{len(self.unreadable)} that are not, first {self.unreadable[0]}. '
        'Write fewer shards, or look at the source.'
      )
    return True

  def finish(self) -> Note:
    """Checks the file, brings it to the disk and gives it its name."""
    size = self._path.stat().st_size
    if size != self._bytes:
      raise OSError(f'{size} of {self._bytes} bytes of {self._name} written')
    shard = manifest.Shard(
      self._name, self._examples, size, shard_manifest.sha256(self._path)
    )
    note = Note(shard, tuple(map(str, self.unreadable)))
    disk.put(self._path, self._place / self._name)
    # A note that is lost with the power costs no more than this shard.
    _note_path(self._place, self._name).write_text(
      json.dumps({'shard': shard._asdict(), 'skipped': note.skipped}),
      encoding='utf-8',
    )
    return note


def _note_path(place: pathlib.Path, name: str) -> pathlib.Path:
  return place / f'{name}.json'


def _encoded(pool, jobs, encoder):
  """Yields (job, iterator of lists of payloads), encoded ahead, in order."""
  waiting = collections.deque()
  tasks = (
    (job, job.items[start : start + encoder.together])
    for job in jobs
    for start in range(0, len(job.items), encoder.together)
  )

  def submit_next():
    for _, items in tasks:
      waiting.append(pool.submit(_encode_list, encoder.encode, items))
      return

  for _ in range(_CHUNKS_AHEAD * encoder.num_threads):
    submit_next()

  def chunks(job):
    for _ in range(0, len(job.items), encoder.together):
      submit_next()
      yield waiting.popleft().result()

  for job in jobs:
    yield job, chunks(job)


def _encode_list(encode, items):
  return list(encode(items))
