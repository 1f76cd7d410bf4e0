"""Writes the metadata that TensorFlow Datasets needs to read shards."""

import os
import pathlib
import re
import types
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from google.protobuf import message

from slim import errors
from slim.datasets.records import features
from slim.datasets.records import manifest
from slim.datasets.records import records

_SHARDED = re.compile(r'(.+)-\d{5}-of-\d{5}')
_LABEL = 'image/class/label'
# Their names are a list in memory and in a file.
_MAX_CLASSES = 2**20
# Features with these keys are lists of any length, including 0.
_LISTS = 'image/object/'


def write(data_dir: str | os.PathLike[str]) -> None:
  """Writes dataset_info.json and features.json into a folder of records.

  `tfds.builder_from_directory(data_dir)` then reads the folder, in the order
  of the records. Keys become nested: 'image/class/label' is
  example['image']['class']['label'].

  Args:
    data_dir: a folder that a converter filled with numbered shards.

  Raises:
    slim.errors.DataError: the folder has no manifest with features, holds
      text, or its files have other names.
  """
  # The import takes seconds.
  import tensorflow_datasets as tfds

  data_dir = pathlib.Path(data_dir)
  found = manifest.read(data_dir)
  if found is None or not found.features:
    raise errors.DataError(
      f'{data_dir}: expected a {manifest.FILE_NAME} that names the features of '
      'the records, received none. Convert the data set again.'
    )
  if found.text:
    raise errors.DataError(
      f'{data_dir}: expected records of images, received records of text. Give '
      'a folder of images, or read the text with tf.data.'
    )
  _check_manifest(data_dir, found)
  template = tfds.core.ShardedFileTemplate(
    data_dir=data_dir,
    template='{SPLIT}-{SHARD_X_OF_Y}',
    dataset_name=found.dataset,
    filetype_suffix='tfrecord',
  )
  splits = [
    tfds.core.SplitInfo(
      name=name,
      shard_lengths=[shard.num_examples for shard in entry.shards],
      num_bytes=sum(shard.size for shard in entry.shards),
      filename_template=template.replace(split=name),
    )
    for name, entry in found.splits.items()
  ]
  first, *_ = (s.file for e in found.splits.values() for s in e.shards)
  tfds.folder_dataset.write_metadata(
    data_dir=data_dir,
    features=_nested(_connectors(found, _example(data_dir / first), tfds)),
    split_infos=splits,
    filename_template=template,
    check_data=False,
    description=f'{found.dataset}, from {found.source}',
  )


def _check_manifest(folder: pathlib.Path, found: manifest.Manifest) -> None:
  if not all(entry.shards for entry in found.splits.values()) or not (
    found.splits and found.label_range <= _MAX_CLASSES
  ):
    raise errors.DataError(
      f'{folder / manifest.FILE_NAME}: expected splits with shards and at most '
      f'{_MAX_CLASSES} classes, received splits {[*found.splits]} and '
      f'{found.label_range} classes. Convert the data set again.'
    )
  for split, entry in found.splits.items():
    for shard in entry.shards:
      match = _SHARDED.fullmatch(shard.file)
      if not match or match[1] != split:
        raise errors.DataError(
          f'{folder / shard.file}: expected {split}-00000-of-00001 and so on, '
          'the names that tensorflow-datasets requires, received another name. '
          'Convert the data set with --shard.'
        )


def _example(path: pathlib.Path) -> Mapping[str, tf.train.Feature]:
  """Returns the features of the first record of a file."""
  problem = 'none'
  try:
    for serialized in tf.data.TFRecordDataset(os.fspath(path)).take(1):
      found = tf.train.Example.FromString(serialized.numpy()).features.feature
      needed = (
        found['image/format'].bytes_list,
        found['image/channels'].int64_list,
      )
      if all(one.value for one in needed):
        return found
      problem = 'one without image/format or image/channels'
  except (*records.FAILURES, message.DecodeError) as error:
    problem = records.message_of(error)
  raise errors.DataError(
    f'{path}: expected a record of an image, received {problem}. Convert the '
    'data set again.'
  )


def _connectors(
  found: manifest.Manifest,
  example: Mapping[str, tf.train.Feature],
  tfds: types.ModuleType,
) -> dict[str, Any]:
  """Returns {key: tfds feature connector} of all features."""
  connectors = (
    tfds.features.Text(),
    tfds.features.Scalar(tf.int64),
    tfds.features.Scalar(tf.float32),
  )
  kinds = dict(zip(manifest.FEATURE_KINDS, connectors, strict=True))
  made = {}
  for key, kind in found.features.items():
    made[key] = kinds[kind]
    if key.startswith(_LISTS):
      made[key] = tfds.features.Sequence(kinds[kind])
  names = found.labels or {}
  named = [names.get(i, f'class {i}') for i in range(found.label_range)]
  if len({*named}) == len(named):
    made[_LABEL] = tfds.features.ClassLabel(names=named)
  raw = example['image/format'].bytes_list.value[0] == b'RAW'
  if not raw:
    channels = example['image/channels'].int64_list.value[0]
    made[features.IMAGE] = tfds.features.Image(shape=(None, None, channels))
  return made


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
  """Converts {'a/b': x} to {'a': {'b': x}}."""
  tree: dict[str, Any] = {}
  for key, value in flat.items():
    *above, last = key.split('/')
    inner = tree
    for name in above:
      inner = inner.setdefault(name, {})
    inner[last] = value
  return tree
