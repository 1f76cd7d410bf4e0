"""Writes shards one after the other, of examples that threads encode.

Threads, because what costs time (decoding and encoding images, checksums,
writing) happens outside of Python's lock. A finished shard lies in the place
with a note beside it, by which an interrupted run finds it again.
"""

import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
from collections import abc
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import tensorflow as tf

from slim import errors
from slim.datasets.records import disk
from slim.datasets.records import manifest
from slim.datasets.records import progress
from slim.datasets.records import shard_manifest

_FRAMING_BYTES = 16  # of a record: its length, and two checksums
_CHUNKS_AHEAD = 4  # a thread; bounds the memory for encoded examples

_Task = TypeVar('_Task')
_Result = TypeVar('_Result')


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
  place: pathlib.Path,
  shards: abc.Mapping[str, abc.Sequence[Any]],
  encoder: Encoder,
) -> tuple[dict[str, Note], list[Unreadable]]:
  """Writes shards into the place, each with a note.

  All items are encoded even where some are unreadable, to name them all.

  Args:
    place: receives them.
    shards: the items of each, one an example, by the name of its file.
    encoder: makes the examples.

  Returns:
    Notes of what was finished, by name, and what is unreadable.

  Raises:
    slim.errors.DataError: a shard would have no record.
    OSError, tf.errors.OpError: a shard cannot be written.
  """
  pool = concurrent.futures.ThreadPoolExecutor(encoder.num_threads)
  unreadable: list[Unreadable] = []
  finishing = []
  encoded = itertools.chain.from_iterable(
    _ahead(
      pool,
      lambda items: list(encoder.encode(items)),
      (
        items[start : start + encoder.together]
        for items in shards.values()
        for start in range(0, len(items), encoder.together)
      ),
      _CHUNKS_AHEAD * encoder.num_threads,
    )
  )
  total = sum(map(len, shards.values()))
  try:
    with progress.Progress(total=total, unit=' images') as bar:
      for name, items in shards.items():
        own = itertools.islice(encoded, len(items))
        file = _write_file(place / f'{name}.part', own, bar)
        unreadable += file.unreadable
        if file.unreadable and not encoder.skip_unreadable:
          file.path.unlink()
          continue
        if not file.num_examples:
          raise errors.DataError(
            f'{name}: expected at least one readable image; received '
            f'{len(file.unreadable)} that are not, first {file.unreadable[0]}. '
            'Write fewer shards, or look at the source.'
          )
        # Hashing and waiting for the disk need not hold up the next shard.
        finishing.append(pool.submit(_finish, place, name, file))
      notes = [future.result() for future in finishing]
  finally:
    pool.shutdown(cancel_futures=True)
    for left in place.glob('*.part'):
      left.unlink()
  return {note.shard.file: note for note in notes}, unreadable


class _File(NamedTuple):
  """A file of records that is closed, and what could not be in it."""

  path: pathlib.Path
  num_examples: int
  size: int
  unreadable: list[Unreadable]


def _write_file(
  path: pathlib.Path,
  payloads: abc.Iterable[bytes | Unreadable],
  bar: progress.Progress,
) -> _File:
  """Writes records; the size is what the file must have, in bytes."""
  unreadable: list[Unreadable] = []
  num_examples = size = 0
  with tf.io.TFRecordWriter(os.fspath(path)) as writer:
    for payload in payloads:
      bar.update()
      if isinstance(payload, Unreadable):
        unreadable.append(payload)
        continue
      writer.write(payload)
      num_examples += 1
      size += len(payload) + _FRAMING_BYTES
  return _File(path, num_examples, size, unreadable)


def _finish(place: pathlib.Path, name: str, file: _File) -> Note:
  """Checks the file, brings it to the disk and gives it its name."""
  size = file.path.stat().st_size
  if size != file.size:
    raise OSError(f'{size} of {file.size} bytes of {name} written')
  shard = manifest.Shard(name, file.num_examples, size, disk.digest(file.path))
  note = Note(shard, tuple(map(str, file.unreadable)))
  disk.put(file.path, place / name)
  # A note that is lost with the power costs no more than this shard.
  _note_path(place, name).write_text(
    json.dumps({'shard': shard._asdict(), 'skipped': note.skipped}),
    encoding='utf-8',
  )
  return note


def _note_path(place: pathlib.Path, name: str) -> pathlib.Path:
  return place / f'{name}.json'


def _ahead(
  pool: concurrent.futures.Executor,
  function: abc.Callable[[_Task], _Result],
  tasks: abc.Iterator[_Task],
  number: int,
) -> abc.Iterator[_Result]:
  """The results in order, while `number` more tasks are done or wait."""
  waiting = collections.deque(
    pool.submit(function, task) for task in itertools.islice(tasks, number)
  )
  while waiting:
    for task in itertools.islice(tasks, 1):
      waiting.append(pool.submit(function, task))
    yield waiting.popleft().result()
