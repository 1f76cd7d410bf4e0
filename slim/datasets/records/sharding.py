"""Writes the shards of a data set; readers see all of them or none.

Shards are first written into the folder of `staging`, where an interrupted
run finds its finished shards again. When all are finished, they are moved
into the output folder, and shards.json is written last.
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
from slim.datasets.records import text_facts

_folder_refusal = functools.partial(
  errors.refusal,
  expected='an empty folder, or one with the result of the same conversion',
  remedy='Choose another folder, move the files to another folder, or pass '
  f'--overwrite, which replaces the files that {manifest.FILE_NAME} lists and '
  'those with the names of the new ones.',
)

_FORMAT = 'shards 2'  # change it when equal plans give different records
_PLAN = 'plan'
_MAX_SHARDS = 99_999  # their numbers have five digits


class OutputSplit(NamedTuple):
  """The examples of a split, and the files to write them into.

  Attributes:
    name: 'train', 'test', 'validation'.
    file_names: names of the shards, which get equal parts, in order.
    items: one item per example; slicing must be cheap.
  """

  name: str
  file_names: tuple[str, ...]
  items: abc.Sequence[Any]


class ExampleIndex(NamedTuple):
  """An example: its split, and its index in the split."""

  split: str
  number: int


def make_split(
  split: str, file_names: tuple[str, ...], size: int
) -> OutputSplit:
  """Returns a split of `size` items, each an `ExampleIndex`."""
  items = [ExampleIndex(split, number) for number in range(size)]
  return OutputSplit(split, file_names, items)


class ConversionPlan(NamedTuple):
  """The contents of a conversion.

  Attributes:
    dataset: name of the data set.
    class_names: names of labels 0, 1, ..., as in `manifest.Manifest`.
    splits: at least one.
    encode: function of `slim.datasets.records.shard_writer.Encoder`.
    source: origin of the examples, for messages and shards.json.
    identity: equal only if all items and their examples are equal.
    items_per_call: number of items per call of `encode`.
    text: facts about a data set of text; None for images.
  """

  dataset: str
  class_names: tuple[str, ...]
  splits: tuple[OutputSplit, ...]
  encode: abc.Callable[[abc.Sequence[Any]], abc.Iterable[Any]]
  source: str
  identity: str
  items_per_call: int = 1
  text: text_facts.TextFacts | None = None


class ConversionOptions(NamedTuple):
  """Options of a conversion.

  Attributes:
    num_threads: number of encoding threads; 0 uses one per core.
    skip_unreadable: skips unreadable examples instead of failing, and reuses
      files without them.
    overwrite: replaces the shards of another conversion, and files with the
      names of the new ones.
  """

  num_threads: int = 0
  skip_unreadable: bool = False
  overwrite: bool = False


class Report(NamedTuple):
  """The result of a conversion.

  Attributes:
    written: False if complete files already existed and were reused.
    counts: number of examples by split.
    source: origin of the examples; '' if the files were reused.
    skipped: skipped unreadable examples, as 'name: reason'.
  """

  written: bool
  counts: dict[str, int]
  source: str
  skipped: tuple[str, ...] = ()


def file_names(split: str, number: int) -> tuple[str, ...]:
  """Returns the file names of the `number` shards of a split.

  Raises:
    slim.errors.DataError: `number` is not in [1, 99999].

  Examples:
    >>> file_names('train', 2)
    ('train-00000-of-00002', 'train-00001-of-00002')
  """
  if not 1 <= number <= _MAX_SHARDS:
    raise errors.DataError(
      f'{split}: expected 1 to {_MAX_SHARDS} shards; received {number}. Give '
      'another number of shards.'
    )
  return tuple(f'{split}-{i:05d}-of-{number:05d}' for i in range(number))


def write(
  folder: pathlib.Path,
  plan: ConversionPlan,
  options: ConversionOptions | None = None,
) -> Report:
  """Writes all shards, labels.txt and shards.json.

  A complete conversion of the same plan is reused.

  Args:
    folder: output folder; created if it does not exist.
    plan: what to write.
    options: None uses the defaults.

  Returns:
    What was written or reused.

  Raises:
    slim.errors.DataError: the folder is not writable, is full, is in use by
      another process, or holds another conversion; items are unreadable
      (the message names them all); a split has fewer items than shards; or a
      class name cannot be a line of labels.txt.
  """
  options = options or ConversionOptions()
  if options.num_threads < 0:
    raise errors.DataError(
      f'--num_threads: expected at least 0; received {options.num_threads}. 0 '
      'uses one thread per core.'
    )
  for split in plan.splits:
    _check_size(plan, split)
  _check_names(plan)
  try:
    with staging.lock_folder(folder) as staging_folder:
      try:
        complete = _find_complete(folder, staging_folder, plan, options)
        if complete:
          return Report(False, complete.counts, '', complete.skipped)
        return _write(folder, staging_folder, plan, options)
      finally:
        # The folder is useful to the next run only if it has finished shards.
        if staging_folder.is_dir() and not any(staging_folder.glob('*.json')):
          staging.remove(staging_folder)
  except (OSError, tf.errors.OpError) as error:
    raise errors.DataError(
      f'{folder}: expected a writable folder with free space; received '
      f'"{getattr(error, "message", error)}". Free some space and run the '
      'command again (it reuses finished shards), or choose another folder.'
    ) from error


def _check_size(plan: ConversionPlan, split: OutputSplit) -> None:
  if not 1 <= len(split.file_names) <= len(split.items):
    raise errors.DataError(
      f'{plan.source}: expected 1 to {len(split.items)} shards for the '
      f'{len(split.items)} examples of {split.name}; received '
      f'{len(split.file_names)}. Give another number of shards.'
    )


def _check_names(plan: ConversionPlan) -> None:
  for name in plan.class_names:
    # Names from other sources may end with spaces, which do no harm.
    problem = label_lines.find_problem(name.rstrip(' '))
    if problem:
      raise errors.DataError(
        f'{plan.source}: expected class names that can be lines of labels.txt; '
        f'received {name!r}: {problem}. Change the name in the source.'
      )


def _fingerprint(plan: ConversionPlan) -> str:
  described = [
    *(_FORMAT, plan.dataset, plan.class_names, plan.identity),
    *itertools.chain.from_iterable(
      (split.name, split.file_names, len(split.items)) for split in plan.splits
    ),
  ]
  return hashlib.sha256(json.dumps(described).encode()).hexdigest()


def _find_complete(
  folder: pathlib.Path,
  staging_folder: pathlib.Path,
  plan: ConversionPlan,
  options: ConversionOptions,
) -> manifest.Manifest | None:
  """Returns a complete conversion of this plan; refuses any other files."""
  names = [name for split in plan.splits for name in split.file_names]
  fingerprint = _fingerprint(plan)
  found = shard_manifest.earlier(folder)
  if found and not options.overwrite:
    if found.fingerprint != fingerprint:
      raise _folder_refusal(
        folder, received='the result of another source or other options'
      )
    complete = shard_manifest.intact(folder, names)
    if complete and _accepts(options, complete.skipped):
      return complete
  may_replace = (
    options.overwrite or found or _is_claimed(staging_folder, fingerprint)
  )
  written = {manifest.FILE_NAME, shard_manifest.LABELS_FILE, *names}
  known = {*written, *(found.names if found else ())} if may_replace else ()
  prefixes = tuple(f'{split.name}-' for split in plan.splits)
  unexpected = [
    name
    for name in sorted(os.listdir(folder))
    if (name in written or name.startswith(prefixes)) and name not in known
  ]
  if unexpected:
    raise _folder_refusal(
      folder, received=f'{unexpected[0]} (unexpected files: {len(unexpected)})'
    )
  return None


def _accepts(options: ConversionOptions, skipped: tuple[str, ...]) -> bool:
  """Returns whether files that lack the `skipped` examples are finished."""
  return options.skip_unreadable or not skipped


def _listed_names(folder: pathlib.Path) -> list[str]:
  """Returns the names of the shards of an earlier conversion."""
  found = shard_manifest.earlier(folder)
  return found.names if found else []


def _write(
  folder: pathlib.Path,
  staging_folder: pathlib.Path,
  plan: ConversionPlan,
  options: ConversionOptions,
) -> Report:
  shards = _items_of_shards(plan)
  _claim(staging_folder, _fingerprint(plan))
  found = shard_writer.find_finished(staging_folder, folder, shards)
  notes = {
    name: note
    for name, note in found.items()
    if _accepts(options, note.skipped)
  }
  missing = {name: shards[name] for name in shards if name not in notes}
  encoder = shard_writer.Encoder(
    plan.encode,
    plan.items_per_call,
    options.num_threads or os.cpu_count() or 1,
    options.skip_unreadable,
  )
  written, unreadable = shard_writer.write(staging_folder, missing, encoder)
  if unreadable and not options.skip_unreadable:
    raise shard_writer.refusal(plan.source, unreadable)
  notes.update(written)
  content = _manifest(plan, notes, staging_folder, folder)
  _publish(folder, staging_folder, content)
  return Report(True, content.counts, plan.source, content.skipped)


def _claim(staging_folder: pathlib.Path, fingerprint: str) -> None:
  """Removes the files that another plan left in the staging folder."""
  if not _is_claimed(staging_folder, fingerprint):
    for old in [*staging_folder.glob('*-*'), *staging_folder.glob('*.json')]:
      old.unlink(missing_ok=True)
    disk.write_text(staging_folder / _PLAN, fingerprint)


def _is_claimed(staging_folder: pathlib.Path, fingerprint: str) -> bool:
  """Returns whether an interrupted run of this plan used the folder."""
  path = staging_folder / _PLAN
  return path.is_file() and path.read_text(encoding='utf-8') == fingerprint


def _items_of_shards(plan: ConversionPlan) -> dict[str, abc.Sequence[Any]]:
  """Returns the items of each shard by its name: equal parts of its split."""
  return {
    name: split.items[
      slice(*order.partition(len(split.items), number, len(split.file_names)))
    ]
    for split in plan.splits
    for number, name in enumerate(split.file_names)
  }


def _manifest(
  plan: ConversionPlan,
  notes: abc.Mapping[str, shard_writer.Note],
  staging_folder: pathlib.Path,
  folder: pathlib.Path,
) -> manifest.Manifest:
  first = plan.splits[0].file_names[0]
  shard_folder = (
    staging_folder if (staging_folder / first).is_file() else folder
  )
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
    features=shard_manifest.features_of(shard_folder / first),
    source=_escape(plan.source),
    fingerprint=_fingerprint(plan),
    skipped=tuple(
      _escape(line) for note in notes.values() for line in note.skipped
    ),
    text=plan.text,
  )


def _escape(text: str) -> str:
  """Escapes bytes of file names that are not UTF-8: readers refuse them."""
  return text.encode(errors='backslashreplace').decode()


def _publish(
  folder: pathlib.Path, staging_folder: pathlib.Path, found: manifest.Manifest
) -> None:
  """Moves the shards into the output folder.

  shards.json is deleted before its shards are replaced, and written last. While
  it is missing and the staging folder exists, readers refuse the output folder
  (`slim.datasets.records.shard_manifest.check_finished`).
  """
  staged = [name for name in found.names if (staging_folder / name).is_file()]
  # Only shards.json names these: without them, yet with it, readers refuse.
  for name in set(_listed_names(folder)).difference(found.names):
    (folder / name).unlink(missing_ok=True)
  (folder / manifest.FILE_NAME).unlink(missing_ok=True)
  for name in [shard_manifest.LABELS_FILE, *staged]:
    (folder / name).unlink(missing_ok=True)
  for name in staged:
    (staging_folder / name).rename(folder / name)
  disk.sync(folder)
  shard_manifest.write(folder, found)
  staging.remove(staging_folder)
