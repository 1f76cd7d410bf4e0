"""Writes image files with labels as the shards of 2017."""

import functools
import hashlib
import os
import pathlib
import random
from collections import abc
from typing import NamedTuple

from slim import errors
from slim.datasets.files import archives
from slim.datasets.photographs import images
from slim.datasets.records import features
from slim.datasets.records import progress
from slim.datasets.records import shard_writer
from slim.datasets.records import sharding

_SHUFFLE_SEED = 12345


class Item(NamedTuple):
  """An image file with its label.

  Attributes:
    file: location of the file.
    label: label of its class.
  """

  file: archives.Member
  label: int


def shuffled(
  items: abc.Sequence[Item], seed: int = _SHUFFLE_SEED
) -> list[Item]:
  """Returns the items in an order that depends only on names and seed."""
  ordered = sorted(items, key=lambda item: item.file.name)
  random.Random(seed).shuffle(ordered)
  return ordered


def plan(
  dataset: str,
  class_names: abc.Sequence[str],
  splits: abc.Mapping[str, abc.Sequence[Item]],
  file_names: abc.Mapping[str, tuple[str, ...]],
  source: str,
) -> sharding.ConversionPlan:
  """Plans shards of upright JPEGs with the keys of build_image_data.

  Args:
    dataset: name of the data set.
    class_names: names of the labels, from label 0.
    splits: items by split, in the order of the records.
    file_names: names of the shards by split.
    source: origin of the images, for messages.

  Returns:
    The argument of `slim.datasets.records.sharding.write`.
  """
  return sharding.ConversionPlan(
    dataset=dataset,
    class_names=tuple(class_names),
    splits=tuple(
      sharding.OutputSplit(split, file_names[split], items)
      for split, items in splits.items()
    ),
    encode=lambda items: (
      _encode(item, class_names[item.label]) for item in items
    ),
    source=source,
    identity=f'JPEG {images.QUALITY} {identity(splits.values())}',
    items_per_call=4,
  )


def identity(splits: abc.Iterable[abc.Iterable[Item]]) -> str:
  """Returns a hash of names, labels, sizes and times of all files.

  Raises:
    OSError: a file's status cannot be read.
  """
  digest = hashlib.sha256()
  # Cached, because many images may be in the same tar.
  time_of = functools.cache(lambda path: os.stat(path).st_mtime_ns)
  for items in splits:
    for file, label in items:
      described = (*file[:4], label, time_of(file.path))
      digest.update(f'{described}\n'.encode(errors='surrogateescape'))
  return digest.hexdigest()


def unpack(
  items: abc.Iterable[Item],
  class_names: abc.Sequence[str],
  folder: pathlib.Path,
) -> None:
  """Writes the images as files, into a folder for each class.

  Existing files of the same size are not written again.

  Args:
    items: the images to write.
    class_names: names of the folders, from label 0.
    folder: output folder; created if it does not exist.

  Raises:
    slim.errors.DataError: the folder is not writable or the disk is full.
  """
  try:
    for item in progress.Progress(items, desc=folder.name, unit=' images'):
      name = pathlib.PurePosixPath(item.file.name).name
      path = folder / class_names[item.label] / name
      if path.is_file() and path.stat().st_size == item.file.size:
        continue
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(_content(item))
  except (OSError, images.ImageError) as error:
    raise errors.DataError(
      f'{folder}: expected a writable folder with free space; received '
      f'"{error}". Free some space and run the command again; it continues.'
    ) from error


def read(
  item: Item, make: abc.Callable[[bytes], images.Encoded]
) -> images.Encoded | shard_writer.Unreadable:
  """Reads and checks an image.

  Args:
    item: the image.
    make: a function of `slim.datasets.photographs.images`, such as `to_jpeg`.

  Returns:
    What `make` returns, or the reason why the image cannot be read.
  """
  name = item.file.path
  if not name.endswith(item.file.name):
    name = f'{name}, {item.file.name}'
  try:
    return make(_content(item))
  except (OSError, images.ImageError) as error:
    return shard_writer.Unreadable(name, str(error))


def _content(item: Item) -> bytes:
  """Returns the content; refuses a file that is too large for an image."""
  images.check_bytes(item.file.size)
  return item.file.read()


def _encode(item: Item, text: str) -> bytes | shard_writer.Unreadable:
  image = read(item, images.to_jpeg)
  if isinstance(image, shard_writer.Unreadable):
    return image
  name = pathlib.PurePosixPath(item.file.name).name
  return record(image, item.label, text, name)


def record(image: images.Encoded, label: int, text: str, name: str) -> bytes:
  """Serializes an image as build_image_data does.

  Args:
    image: a JPEG.
    label: label of its class.
    text: name of the class.
    name: file name without a folder.
  """
  size = (image.height, image.width, 3)
  return features.serialize(
    {
      **features.image_features(b'JPEG', size, label, text),
      'image/filename': features.bytes_feature(os.fsencode(name)),
      features.IMAGE: features.bytes_feature(image.content),
    }
  )
