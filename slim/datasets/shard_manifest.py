"""shards.json: what a folder of shards holds, so that nobody has to count.

It is written last: a folder that has one is whole. A folder without one was
filled by other tools, or by a conversion that did not end.
"""

import hashlib
import json
import os
import pathlib
from collections import abc
from typing import NamedTuple

import tensorflow as tf
import tqdm

from slim import errors
from slim.datasets import records
from slim.datasets import staging

FILE = 'shards.json'
LABELS_FILE = 'labels.txt'

_FORMAT = 1
_LABEL = 'image/class/label'
_HASH_TOGETHER = 1 << 20  # bytes


class Shard(NamedTuple):
  """A file of records.

  Attributes:
    file: its name, in the folder of the manifest.
    num_examples: records in it.
    size: in bytes.
    sha256: of the file, in lower-case hexadecimal digits.
  """

  file: str
  num_examples: int
  size: int
  sha256: str


class Manifest(NamedTuple):
  """What a folder holds.

  Attributes:
    dataset: its name, 'cifar10'.
    class_names: names of the labels, from label 0. Where label 0 is no class of
      its own, its name is 'background'.
    features: of every example: kind ('bytes_list', 'float_list' or
      'int64_list') by key.
    splits: shards by split, in the order of the examples.
    source: where the examples came from, for people.
    fingerprint: equal for equal examples in equal order and shards.
    skipped: names of files that were left out because they are unreadable.
  """

  dataset: str
  class_names: tuple[str, ...]
  features: dict[str, str]
  splits: dict[str, tuple[Shard, ...]]
  source: str
  fingerprint: str
  skipped: tuple[str, ...] = ()

  @property
  def names(self) -> list[str]:
    """Names of all shards."""
    return [shard.file for part in self.splits.values() for shard in part]

  @property
  def counts(self) -> dict[str, int]:
    """Number of examples by split."""
    return {
      split: sum(shard.num_examples for shard in part)
      for split, part in self.splits.items()
    }


def sha256(path: os.PathLike) -> str:
  """Returns the hash of a file, in lower-case hexadecimal digits."""
  digest = hashlib.sha256()
  with open(path, 'rb') as file:
    while piece := file.read(_HASH_TOGETHER):
      digest.update(piece)
  return digest.hexdigest()


def features_of(path: os.PathLike) -> dict[str, str]:
  """Returns kind by key of the features of a file's first example."""
  with open(path, 'rb') as file:  # a stream would take a tenth of a second
    length = int.from_bytes(file.read(8), 'little')
    file.seek(4, os.SEEK_CUR)  # the checksum of the length
    features = tf.train.Example.FromString(file.read(length)).features.feature
  return {key: features[key].WhichOneof('kind') for key in sorted(features)}


def write(folder: pathlib.Path, manifest: Manifest) -> None:
  """Writes labels.txt, then shards.json, each whole or not at all.

  Args:
    folder: where the shards are.
    manifest: what to say.

  Raises:
    OSError: it cannot be written.
  """
  labels = ''.join(
    f'{label}:{name}\n' for label, name in enumerate(manifest.class_names)
  )
  staging.write_file(folder / LABELS_FILE, labels)
  splits = {
    split: {
      'num_examples': manifest.counts[split],
      'shards': [shard._asdict() for shard in part],
    }
    for split, part in manifest.splits.items()
  }
  known = manifest._asdict()
  class_names = known.pop('class_names')
  content = {
    'format': _FORMAT,
    **known,
    'labels': dict(enumerate(class_names)),
    'num_classes': len(class_names),
    'splits': splits,
  }
  staging.write_file(folder / FILE, json.dumps(content, indent=1) + '\n')


def read(folder: os.PathLike | str) -> Manifest | None:
  """Reads shards.json.

  Args:
    folder: which may have one.

  Returns:
    None where there is none.

  Raises:
    slim.errors.DataError: it is no shards.json of this format.
  """
  path = pathlib.Path(folder) / FILE
  try:
    content = json.loads(path.read_text(encoding='utf-8'))
  except FileNotFoundError:
    return None
  except (OSError, ValueError) as error:
    raise _refusal(path, f'"{error}"') from error
  try:
    return _parse(content)
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise _refusal(path, f'one with a fault: {error!r}') from error


def intact(folder: pathlib.Path, names: abc.Sequence[str]) -> Manifest | None:
  """Finds an earlier conversion into the same shards, and reads it all.

  Args:
    folder: which may hold one.
    names: of the shards that it must have, in order.

  Returns:
    The manifest; None where there is none, its shards have other names, or one
    of them does not have its checksum.
  """
  try:
    found = read(folder)
  except errors.DataError:
    return None
  if not found or found.names != list(names):
    return None
  labels = folder / LABELS_FILE
  parts = (shard for part in found.splits.values() for shard in part)
  whole = labels.is_file() and all(has_content(folder, s) for s in parts)
  return found if whole else None


def has_content(folder: pathlib.Path, shard: Shard) -> bool:
  """Whether the shard's file is there with its size and checksum."""
  path = folder / shard.file
  return (
    path.is_file()
    and path.stat().st_size == shard.size
    and sha256(path) == shard.sha256
  )


def check_finished(folder: os.PathLike | str) -> None:
  """Refuses a folder in which a first conversion did not come to its end.

  Args:
    folder: to read records from.

  Raises:
    slim.errors.DataError: there is the folder of an unfinished conversion, but
      no shards.json.
  """
  folder = pathlib.Path(folder)
  if (folder / staging.FOLDER).is_dir() and not (folder / FILE).is_file():
    raise errors.DataError(
      f'{folder}: expected a finished conversion; received one that runs, or '
      'that was stopped. Wait for it, or run it again: it continues. To give '
      f'it up, delete {folder / staging.FOLDER} and the shards.'
    )


def verify(folder: os.PathLike | str) -> Manifest:
  """Reads every record of every shard and checks it against shards.json.

  Args:
    folder: of the shards.

  Returns:
    The manifest, all of which holds.

  Raises:
    slim.errors.DataError: no manifest, a shard is missing or damaged, or a
      record has other features or a label that is no class; names the shard.
  """
  folder = pathlib.Path(folder)
  found = read(folder)
  if not found:
    raise errors.DataError(
      f'{folder}: expected {FILE}; received none. Convert the data set into '
      'this folder, and let it finish.'
    )
  total = sum(found.counts.values())
  bar = {'desc': 'verify', 'unit': ' images', 'disable': None}
  with tqdm.tqdm(total=total, **bar) as progress:
    for part in found.splits.values():
      for shard in part:
        _verify_shard(folder / shard.file, shard, found)
        progress.update(shard.num_examples)
  return found


def _verify_shard(path: pathlib.Path, shard: Shard, found: Manifest) -> None:
  count = records.verify(path)
  if count != shard.num_examples:
    raise _damaged(path, f'{shard.num_examples} examples', f'{count}')
  digest = sha256(path)
  if digest != shard.sha256:
    raise _damaged(path, f'sha256 {shard.sha256}', digest)
  stream = tf.data.TFRecordDataset(os.fspath(path)).as_numpy_iterator()
  for number, serialized in enumerate(stream):
    features = tf.train.Example.FromString(serialized).features.feature
    kinds = {key: features[key].WhichOneof('kind') for key in sorted(features)}
    if kinds != found.features:
      raise _damaged(
        path, f'the features {found.features}', f'{kinds} in record {number}'
      )
    label = features[_LABEL].int64_list.value[0]
    if not 0 <= label < len(found.class_names):
      raise _damaged(
        path,
        f'labels in [0, {len(found.class_names)})',
        f'{label} in record {number}',
      )


def _parse(content: dict) -> Manifest:
  if content['format'] != _FORMAT:
    raise ValueError(f'format {content["format"]}, not {_FORMAT}')
  splits = {}
  for split, part in content['splits'].items():
    splits[split] = tuple(Shard(**shard) for shard in part['shards'])
    for shard in splits[split]:
      if pathlib.PurePath(shard.file).name != shard.file:
        raise ValueError(f'{shard.file!r} is not the name of a file')
  labels = content['labels']
  known = {
    name: content[name] for name in Manifest._fields if name != 'class_names'
  }
  return Manifest(
    **{
      **known,
      'class_names': tuple(labels[str(i)] for i in range(len(labels))),
      'skipped': tuple(content['skipped']),
      'splits': splits,
    }
  )


def _refusal(path: pathlib.Path, received: str) -> errors.DataError:
  return errors.DataError(
    f'{path}: expected a manifest of shards, format {_FORMAT}; received '
    f'{received}. Convert the data set again with --overwrite.'
  )


def _damaged(
  path: pathlib.Path, expected: str, received: str
) -> errors.DataError:
  return errors.DataError(
    f'{path}: expected {expected}, as {FILE} says; received {received}. '
    'Convert the data set again.'
  )
