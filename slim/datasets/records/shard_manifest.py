"""Writes shards.json and verifies a folder of shards against it.

shards.json is written last, so a folder that has it is complete. A folder
without it was filled by other tools or by an unfinished conversion.
"""

import contextlib
import json
import os
import pathlib
from collections import abc

import numpy as np
import tensorflow as tf
from google.protobuf import message

from slim import errors
from slim.datasets.records import disk
from slim.datasets.records import manifest
from slim.datasets.records import progress
from slim.datasets.records import records
from slim.datasets.records import staging

LABELS_FILE = 'labels.txt'

_LABEL, _TOKENS = 'image/class/label', 'text/tokens'


def features_of(path: os.PathLike[str]) -> dict[str, str]:
  """Returns the kind of each feature, by key, of a file's first example."""
  with open(path, 'rb') as file:  # a tf.data pipeline would take 0.1 seconds
    length = int.from_bytes(file.read(8), 'little')
    file.seek(4, os.SEEK_CUR)  # the checksum of the length
    features = tf.train.Example.FromString(file.read(length)).features.feature
  return {key: features[key].WhichOneof('kind') for key in sorted(features)}


def write(folder: pathlib.Path, content: manifest.Manifest) -> None:
  """Writes labels.txt, then shards.json, each atomically.

  Args:
    folder: the folder of the shards.
    content: the manifest to write; its labels may not be None.

  Raises:
    OSError: a file cannot be written.
  """
  labels = (content.labels or {}).items()
  lines = ''.join(f'{label}:{name}\n' for label, name in labels)
  disk.write_text(folder / LABELS_FILE, lines)
  splits = {
    name: {
      'num_examples': split.num_examples,
      'shards': [shard._asdict() for shard in split.shards],
    }
    for name, split in content.splits.items()
  }
  tree = {'format': manifest.FORMAT, **content._asdict(), 'splits': splits}
  if content.text:
    tree['text'] = content.text._asdict()
  else:
    del tree['text']
  text = json.dumps(tree, indent=1) + '\n'
  disk.write_text(folder / manifest.FILE_NAME, text)


def earlier(folder: pathlib.Path) -> manifest.Manifest | None:
  """Returns an earlier conversion's manifest; None if none can be read."""
  with contextlib.suppress(errors.DataError):
    return manifest.read(folder)
  return None


def intact(
  folder: pathlib.Path, names: abc.Sequence[str]
) -> manifest.Manifest | None:
  """Finds an earlier conversion into the same shards and verifies checksums.

  Args:
    folder: the folder of the shards.
    names: expected names of the shards, in order.

  Returns:
    The manifest; None if there is none, its shards have other names, or a
    shard does not match its checksum.
  """
  found = earlier(folder)
  if not found or found.names != list(names):
    return None
  labels = folder / LABELS_FILE
  parts = (shard for s in found.splits.values() for shard in s.shards)
  whole = labels.is_file() and all(has_content(folder, s) for s in parts)
  return found if whole else None


def has_content(folder: pathlib.Path, shard: manifest.Shard) -> bool:
  """Returns whether the shard's file exists with its size and checksum."""
  path = folder / shard.file
  return (
    path.is_file()
    and path.stat().st_size == shard.size
    and disk.digest(path) == shard.sha256
  )


def check_finished(folder: os.PathLike[str] | str) -> None:
  """Refuses a folder whose first conversion did not finish.

  Raises:
    slim.errors.DataError: the folder has the subfolder of an unfinished
      conversion, but no shards.json.
  """
  folder = pathlib.Path(folder)
  if (folder / staging.FOLDER).is_dir() and not (
    folder / manifest.FILE_NAME
  ).is_file():
    raise errors.DataError(
      f'{folder}: expected a finished conversion; received one that is running '
      'or was stopped. Wait until it has finished, or run it again to continue '
      f'it. To abandon it, delete {folder / staging.FOLDER} and the shards.'
    )


def verify(folder: os.PathLike[str] | str) -> manifest.Manifest:
  """Reads every record of every shard and checks it against shards.json.

  Returns:
    The verified manifest.

  Raises:
    slim.errors.DataError: there is no manifest, a shard is missing or
      damaged, or a record has unexpected features or an invalid label. The
      message names the shard.
  """
  folder = pathlib.Path(folder)
  found = manifest.read(folder)
  if not found:
    raise errors.DataError(
      f'{folder}: expected {manifest.FILE_NAME}; received none. Convert the '
      'data set into this folder, and let it finish.'
    )
  total = sum(found.counts.values())
  with progress.Progress(total=total, desc='verify', unit=' examples') as bar:
    for split in found.splits.values():
      for shard in split.shards:
        _verify_shard(folder / shard.file, shard, found)
        bar.update(shard.num_examples)
  return found


def _verify_shard(
  path: pathlib.Path, shard: manifest.Shard, found: manifest.Manifest
) -> None:
  count = records.verify(path)
  if count != shard.num_examples:
    raise _damaged(path, f'{shard.num_examples} examples', f'{count}')
  digest = disk.digest(path)
  if digest != shard.sha256:
    raise _damaged(path, f'sha256 {shard.sha256}', digest)
  stream = tf.data.TFRecordDataset(os.fspath(path)).as_numpy_iterator()
  for number, serialized in enumerate(stream):
    try:
      features = tf.train.Example.FromString(serialized).features.feature
    except message.DecodeError as error:
      raise _damaged(
        path, 'examples', f'"{error}" in record {number}'
      ) from error
    kinds = {key: features[key].WhichOneof('kind') for key in sorted(features)}
    if found.features and kinds != found.features:
      raise _damaged(
        path, f'the features {found.features}', f'{kinds} in record {number}'
      )
    if found.text:
      content = b''.join(features[_TOKENS].bytes_list.value)
      length, size = found.text.sequence_length + 1, found.num_classes
      if problem := _problem_of_tokens(content, length, size):
        raise _damaged(
          path,
          f'{length} tokens below {size}, two bytes each',
          f'{problem} in record {number}',
        )
      continue
    labels = features[_LABEL].int64_list.value
    if len(labels) != 1 or not 0 <= labels[0] < found.num_classes:
      raise _damaged(
        path,
        f'a label in [0, {found.num_classes})',
        f'{list(labels[:9])} in record {number}',
      )


def _problem_of_tokens(content: bytes, length: int, size: int) -> str:
  """Returns what is wrong with a sequence of tokens, or ''.

  Args:
    content: the tokens, 16-bit integers, least significant byte first.
    length: number of tokens that are expected.
    size: number of different tokens.
  """
  if len(content) != 2 * length:
    return f'{len(content)} bytes'
  largest = int(np.frombuffer(content, '<u2').max())
  return f'token {largest}' if largest >= size else ''


def _damaged(
  path: pathlib.Path, expected: str, received: str
) -> errors.DataError:
  return errors.DataError(
    f'{path}: expected {expected}, as {manifest.FILE_NAME} says; received '
    f'{received}. Convert the data set again.'
  )
