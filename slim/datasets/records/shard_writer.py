"""Writes shards one after another, with examples encoded in threads.

Threads suffice because the expensive work (image decoding and encoding,
checksums, writing) runs outside Python's global interpreter lock. Beside each
finished shard is a note, `<name>.json`, with its size and checksum, by which an
interrupted run finds the shard again.
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

_FRAMING_BYTES = 16  # per record: its length and two checksums
_CHUNKS_AHEAD = 4  # per thread; bounds the memory for encoded examples

_Task = TypeVar('_Task')
_Result = TypeVar('_Result')


class Unreadable(NamedTuple):
  """An example that cannot be read.

  Attributes:
    name: name of the item.
    reason: why it cannot be read.
  """

  name: str
  reason: str

  def __str__(self) -> str:
    """Returns 'name: reason'."""
    return f'{self.name}: {self.reason}'


def refusal(
  source: str, unreadable: abc.Sequence[Unreadable]
) -> errors.DataError:
  """Returns the error that names all unreadable items.

  Args:
    source: origin of the examples, for the message.
    unreadable: at least one.
  """
  listed = '\n  '.join(map(str, unreadable))
  return errors.DataError(
    f'{source}: expected readable images; received {len(unreadable)} '
    f'that are not:\n  {listed}\nRepair or remove them and run this again, '
    'or leave them out with --skip_corrupt.'
  )


class Note(NamedTuple):
  """The contents of a finished shard.

  Attributes:
    shard: its name, number of examples, size and checksum.
    skipped: skipped unreadable examples, as 'name: reason'.
  """

  shard: manifest.Shard
  skipped: tuple[str, ...]


class Encoder(NamedTuple):
  """How to encode examples.

  Attributes:
    encode: returns, for each item, a serialized tf.train.Example or an
      Unreadable. Runs in several threads.
    items_per_call: number of items per call of `encode`.
    num_threads: at least 1.
    skip_unreadable: skips unreadable items. If False, a shard with such an
      item is not finished.
  """

  encode: abc.Callable[[abc.Sequence[Any]], abc.Iterable[bytes | Unreadable]]
  items_per_call: int
  num_threads: int
  skip_unreadable: bool


def find_finished(
  staging_folder: pathlib.Path, folder: pathlib.Path, names: abc.Iterable[str]
) -> dict[str, Note]:
  """Finds the shards that an earlier run finished.

  Args:
    staging_folder: its staging folder.
    folder: the output folder, into which it may have moved some shards.
    names: names of the shards to look for.

  Returns:
    Notes by name, of the shards that exist and match their checksums.
  """
  found = {}
  for name in names:
    try:
      content = json.loads(
        _note_path(staging_folder, name).read_text(encoding='utf-8')
      )
      note = Note(manifest.Shard(**content['shard']), tuple(content['skipped']))
    except (OSError, ValueError, KeyError, TypeError):
      continue
    if any(
      shard_manifest.has_content(parent, note.shard)
      for parent in (staging_folder, folder)
    ):
      found[name] = note
  return found


def write(
  staging_folder: pathlib.Path,
  shards: abc.Mapping[str, abc.Sequence[Any]],
  encoder: Encoder,
) -> tuple[dict[str, Note], list[Unreadable]]:
  """Writes shards into the staging folder, each with a note.

  Encodes all items even if some are unreadable, to report every one.

  Args:
    staging_folder: the staging folder.
    shards: the items of each shard, one per example, by file name.
    encoder: encodes the examples.

  Returns:
    Notes of the finished shards by name, and the unreadable items.

  Raises:
    slim.errors.DataError: a shard would have no record.
    OSError, tf.errors.OpError: a shard cannot be written.
  """
  pool = concurrent.futures.ThreadPoolExecutor(encoder.num_threads)
  unreadable: list[Unreadable] = []
  finishing = []
  encoded = itertools.chain.from_iterable(
    _map_ahead(
      pool,
      lambda items: list(encoder.encode(items)),
      (
        items[start : start + encoder.items_per_call]
        for items in shards.values()
        for start in range(0, len(items), encoder.items_per_call)
      ),
      _CHUNKS_AHEAD * encoder.num_threads,
    )
  )
  total = sum(map(len, shards.values()))
  try:
    with progress.Progress(total=total, unit=' examples') as bar:
      for name, items in shards.items():
        shard_payloads = itertools.islice(encoded, len(items))
        file = _write_file(staging_folder / f'{name}.part', shard_payloads, bar)
        unreadable += file.unreadable
        if file.unreadable and not encoder.skip_unreadable:
          file.path.unlink()
          continue
        if not file.num_examples:
          raise errors.DataError(
            f'{name}: expected at least one readable image; received '
            f'{len(file.unreadable)} unreadable ones, the first of them '
            f'{file.unreadable[0]}. Write fewer shards, or repair the source.'
          )
        # The pool hashes and syncs this shard while the next one is written.
        finishing.append(pool.submit(_finish, staging_folder, name, file))
      notes = [future.result() for future in finishing]
  finally:
    pool.shutdown(cancel_futures=True)
    for leftover in staging_folder.glob('*.part'):
      leftover.unlink()
  return {note.shard.file: note for note in notes}, unreadable


class _File(NamedTuple):
  """A closed file of records, and the items that could not be read."""

  path: pathlib.Path
  num_examples: int
  size: int
  unreadable: list[Unreadable]


def _write_file(
  path: pathlib.Path,
  payloads: abc.Iterable[bytes | Unreadable],
  bar: progress.Progress,
) -> _File:
  """Writes records; the returned size is the expected size in bytes."""
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


def _finish(staging_folder: pathlib.Path, name: str, file: _File) -> Note:
  """Checks the file's size, syncs it to disk and renames it to `name`."""
  size = file.path.stat().st_size
  if size != file.size:
    raise OSError(f'wrote {size} of {file.size} bytes of {name}')
  shard = manifest.Shard(name, file.num_examples, size, disk.digest(file.path))
  note = Note(shard, tuple(map(str, file.unreadable)))
  disk.put(file.path, staging_folder / name)
  # If a power cut loses the note, only this shard is written again.
  _note_path(staging_folder, name).write_text(
    json.dumps({'shard': shard._asdict(), 'skipped': note.skipped}),
    encoding='utf-8',
  )
  return note


def _note_path(staging_folder: pathlib.Path, name: str) -> pathlib.Path:
  return staging_folder / f'{name}.json'


def _map_ahead(
  pool: concurrent.futures.Executor,
  function: abc.Callable[[_Task], _Result],
  tasks: abc.Iterator[_Task],
  number: int,
) -> abc.Iterator[_Result]:
  """Yields results in order, with up to `number` tasks submitted ahead."""
  waiting = collections.deque(
    pool.submit(function, task) for task in itertools.islice(tasks, number)
  )
  while waiting:
    for task in itertools.islice(tasks, 1):
      waiting.append(pool.submit(function, task))
    yield waiting.popleft().result()
