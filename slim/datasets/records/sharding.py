"""Writes the shards of a data set: all of them, or nothing a reader takes.

Shards are written into the place of `staging`, where an interrupted run
finds the finished ones again. When all are finished they are moved into
the folder, and shards.json comes last.
"""

import functools
import hashlib
import itertools
import json
import os
import pathlib
from collections import abc
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from slim import errors
from slim.datasets.records import disk
from slim.datasets.records import label_lines
from slim.datasets.records import manifest
from slim.datasets.records import order
from slim.datasets.records import shard_manifest
from slim.datasets.records import shard_writer
from slim.datasets.records import staging

_other = functools.partial(
  errors.refusal,
  expected='an empty folder, or one with this same conversion',
  remedy='Choose another folder, move those files away, or give --overwrite, '
  f'which replaces what {manifest.FILE_NAME} lists.',
)

_FORMAT = 'shards 2'  # change it when equal plans give other records
_PLAN = 'plan'


class OutputSplit(NamedTuple):
  """Examples to write, and the files to write them into.

  Attributes:
    name: 'train', 'test', 'validation'.
    file_names: of the shards, which get equal parts, in order.
    items: one an example; slicing it must be cheap.
  """

  name: str
  file_names: tuple[str, ...]
  items: abc.Sequence[Any]


class Place(NamedTuple):
  """An example: its split, and its number there."""

  split: str
  number: int


def numbered(split: str, file_names: tuple[str, ...], size: int) -> OutputSplit:
  """A split whose items are `Place`s."""
  items = [Place(split, number) for number in range(size)]
  return OutputSplit(split, file_names, items)


class Plan(NamedTuple):
  """All that is to be written.

  Attributes:
    dataset: its name.
    class_names: of labels 0, 1, ...; see `manifest.Manifest`.
    splits: at least one.
    encode: see `slim.datasets.records.shard_writer.Encoder`.
    source: where the examples come from, for people.
    identity: equal only where all items, and what they stand for, are equal.
    together: items that `encode` gets at once.
  """

  dataset: str
  class_names: tuple[str, ...]
  splits: tuple[OutputSplit, ...]
  encode: abc.Callable[[abc.Sequence[Any]], abc.Iterable[Any]]
  source: str
  identity: str
  together: int = 1


class Options(NamedTuple):
  """How to write.

  Attributes:
    num_threads: that encode; 0 takes one a core.
    skip_unreadable: leave out what is unreadable, instead of failing.
    overwrite: replace the shards of another conversion.
  """

  num_threads: int = 0
  skip_unreadable: bool = False
  overwrite: bool = False


class Report(NamedTuple):
  """What a conversion did.

  Attributes:
    written: False when complete files were there and have been kept.
    counts: number of examples by split.
    source: where they came from; '' when kept.
    skipped: what was left out as unreadable, 'name: reason'.
  """

  written: bool
  counts: dict[str, int]
  source: str
  skipped: tuple[str, ...] = ()


def file_names(split: str, number: int) -> tuple[str, ...]:
  """Returns the names of the shards of a split.

  Examples:
    >>> file_names('train', 2)
    ('train-00000-of-00002', 'train-00001-of-00002')
  """
  return tuple(f'{split}-{i:05d}-of-{number:05d}' for i in range(number))


def write(
  folder: pathlib.Path, plan: Plan, options: Options | None = None
) -> Report:
  """Writes all shards, labels.txt and shards.json.

  Args:
    folder: made if it does not exist.
    plan: what to write.
    options: how; None for the defaults.

  Returns:
    What was done. A conversion of the same plan that is whole is kept.

  Raises:
    slim.errors.DataError: the folder cannot be written, has no space, is in use
      by another process, or holds another conversion; items are unreadable
      (names them all); a split has fewer items than shards; or the name of a
      class is no line of text.
  """
  options = options or Options()
  if options.num_threads < 0:
    raise errors.DataError(
      f'--num_threads: expected at least 0; received {options.num_threads}. 0 '
      'takes one a core.'
    )
  for split in plan.splits:
    _check_size(plan, split)
  _check_names(plan)
  try:
    with staging.locked(folder) as place:
      try:
        kept = _kept(folder, plan, options)
        if kept:
          return Report(False, kept.counts, '', kept.skipped)
        return _write(folder, place, plan, options)
      finally:
        # What is left is worth keeping only for its finished shards.
        if place.is_dir() and not any(place.glob('*.json')):
          staging.remove(place)
  except (OSError, tf.errors.OpError) as error:
    raise errors.DataError(
      f'{folder}: expected a folder that can be written and has space; '
      f'received "{getattr(error, "message", error)}". Free some and run this '
      'again (finished shards are kept), or choose another folder.'
    ) from error


def _check_size(plan: Plan, split: OutputSplit) -> None:
  if not 1 <= len(split.file_names) <= len(split.items):
    raise errors.DataError(
      f'{plan.source}: expected 1 to {len(split.items)} shards for the '
      f'{len(split.items)} examples of {split.name}; received '
      f'{len(split.file_names)}. Give another number of shards.'
    )


def _check_names(plan: Plan) -> None:
  for name in plan.class_names:
    # Sources of others have names that end with spaces; they do no harm.
    trouble = label_lines.why_no_line(name.rstrip(' '))
    if trouble:
      raise errors.DataError(
        f'{plan.source}: expected names of classes that can be lines of '
        f'labels.txt; received {name!r}: {trouble}. Change it there.'
      )


def _fingerprint(plan: Plan) -> str:
  described = [
    *(_FORMAT, plan.dataset, plan.class_names, plan.identity),
    *itertools.chain.from_iterable(
      (split.name, split.file_names, len(split.items)) for split in plan.splits
    ),
  ]
  return hashlib.sha256(json.dumps(described).encode()).hexdigest()


def _kept(
  folder: pathlib.Path, plan: Plan, options: Options
) -> manifest.Manifest | None:
  """Returns a whole conversion of this plan; refuses one of another."""
  names = [name for split in plan.splits for name in split.file_names]
  found = None if options.overwrite else shard_manifest.intact(folder, names)
  if found and found.fingerprint == _fingerprint(plan):
    return found
  if found:
    raise _other(folder, received='one whose source or options were others')
  known = {*names, *(_listed(folder) if options.overwrite else ())}
  strangers = [
    path.name
    for path in sorted(folder.iterdir())
    for split in plan.splits
    if path.name.startswith(f'{split.name}-') and path.name not in known
  ]
  if strangers:
    raise _other(
      folder, received=f'{strangers[0]} ({len(strangers)} such files)'
    )
  return None


def _listed(folder: pathlib.Path) -> list[str]:
  """Names of the shards of an earlier conversion."""
  found = shard_manifest.earlier(folder)
  return found.names if found else []


def _write(
  folder: pathlib.Path, place: pathlib.Path, plan: Plan, options: Options
) -> Report:
  shards = _items_of_shards(plan)
  _claim(place, _fingerprint(plan))
  notes = shard_writer.finished(place, folder, shards)
  missing = {name: shards[name] for name in shards if name not in notes}
  encoder = shard_writer.Encoder(
    plan.encode,
    plan.together,
    options.num_threads or os.cpu_count() or 1,
    options.skip_unreadable,
  )
  written, unreadable = shard_writer.write(place, missing, encoder)
  if unreadable and not options.skip_unreadable:
    raise shard_writer.refusal(plan.source, unreadable)
  notes.update(written)
  found = _manifest(plan, notes, place, folder)
  _publish(folder, place, found)
  return Report(True, found.counts, plan.source, found.skipped)


def _claim(place: pathlib.Path, fingerprint: str) -> None:
  """Empties the place of what another plan left there."""
  path = place / _PLAN
  if not path.is_file() or path.read_text(encoding='utf-8') != fingerprint:
    for old in [*place.glob('*-*'), *place.glob('*.json')]:
      old.unlink(missing_ok=True)
    disk.write_text(path, fingerprint)


def _items_of_shards(plan: Plan) -> dict[str, abc.Sequence[Any]]:
  """The items of each shard, by its name: equal parts of its split."""
  return {
    name: split.items[
      slice(*order.part_of(len(split.items), number, len(split.file_names)))
    ]
    for split in plan.splits
    for number, name in enumerate(split.file_names)
  }


def _manifest(
  plan: Plan,
  notes: abc.Mapping[str, shard_writer.Note],
  place: pathlib.Path,
  folder: pathlib.Path,
) -> manifest.Manifest:
  first = plan.splits[0].file_names[0]
  there = place if (place / first).is_file() else folder
  splits = {}
  for split in plan.splits:
    shards = tuple(notes[name].shard for name in split.file_names)
    total = sum(shard.num_examples for shard in shards)
    splits[split.name] = manifest.SplitEntry(total, shards)
  return manifest.Manifest(
    dataset=plan.dataset,
    num_classes=len(plan.class_names),
    labels=dict(enumerate(plan.class_names)),
    splits=splits,
    features=shard_manifest.features_of(there / first),
    source=plan.source,
    fingerprint=_fingerprint(plan),
    skipped=tuple(line for note in notes.values() for line in note.skipped),
  )


def _publish(
  folder: pathlib.Path, place: pathlib.Path, found: manifest.Manifest
) -> None:
  """Moves the shards into the folder; two conversions never meet there.

  shards.json goes first and comes last: without it and with the place there,
  `slim.datasets.records.shard_manifest.check_finished` refuses the folder.
  """
  waiting = [name for name in found.names if (place / name).is_file()]
  moved = set(found.names).difference(waiting)
  old = {*_listed(folder), *found.names} - moved
  (folder / manifest.FILE_NAME).unlink(missing_ok=True)
  for name in [shard_manifest.LABELS_FILE, *old]:
    (folder / name).unlink(missing_ok=True)
  for name in waiting:
    (place / name).rename(folder / name)
  disk.sync(folder)
  shard_manifest.write(folder, found)
  staging.remove(place)
