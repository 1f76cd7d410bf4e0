"""Plans the shards of ImageNet (ILSVRC 2012), from its tars or from folders.

Labels are 1 to 1000 in the order of the synset list; 0 is the background.
"""

import functools
import hashlib
import os
import pathlib
import re
from collections import abc
from typing import NamedTuple

from slim import errors
from slim.datasets.files import archives
from slim.datasets.photographs import image_folders
from slim.datasets.photographs import imagenet_lists
from slim.datasets.photographs import images
from slim.datasets.photographs import labeled_images
from slim.datasets.records import features
from slim.datasets.records import shard_writer
from slim.datasets.records import sharding

NAME = 'imagenet'
SPLITS = ('train', 'validation')

_VALIDATION = re.compile(r'ILSVRC2012_val_(\d{8})\.JPEG')


class Pixels(NamedTuple):
  """How to store an image.

  Attributes:
    raw: True stores RGB pixels, False a JPEG.
    side: height and width to resize raw pixels to, in pixels; 0 keeps the
      size.
  """

  raw: bool = False
  side: int = 0


def training_items(
  source: pathlib.Path, synsets: abc.Sequence[str]
) -> list[labeled_images.Item]:
  """Finds the training images.

  Args:
    source: a tar with a tar `<synset>.tar` for each class, which is not
      unpacked; or a folder with a folder for each class.
    synsets: synsets of the classes; the first has label 1.

  Raises:
    slim.errors.DataError: a class is missing, empty or repeated, a tar or
      folder is not a class, or an archive is damaged.
  """
  if not source.is_file():
    return image_folders.find(source, synsets, 1)
  labels = {f'{synset}.tar': label for label, synset in enumerate(synsets, 1)}
  items: list[labeled_images.Item] = []
  found = set()
  for tar in archives.index(source):
    if tar.name not in labels:
      raise errors.DataError(
        f'{source}: expected a tar for each class; received {tar.name!r}, '
        'which the list of synsets does not name. Check the list.'
      )
    if tar.name in found:
      raise _repeated(source, tar.name)
    found.add(tar.name)
    synset = tar.name.removesuffix('.tar')
    members = archives.index_inner(tar)
    if not members:
      raise errors.DataError(
        f'{source}, {tar.name}: expected images; received an empty tar. '
        'Download it again.'
      )
    items += (
      labeled_images.Item(
        member._replace(name=f'{synset}/{member.name}'), labels[tar.name]
      )
      for member in members
    )
  missing = [name for name in labels if name not in found]
  if missing:
    raise errors.DataError(
      f'{source}: expected a tar for each class; received none for '
      f'{missing[0]} ({len(missing)} such classes). Check the list of synsets.'
    )
  return items


def validation_items(
  source: pathlib.Path, synsets: abc.Sequence[str], labels: abc.Sequence[int]
) -> list[labeled_images.Item]:
  """Finds the validation images.

  Args:
    source: a tar of `ILSVRC2012_val_<number>.JPEG`; or a folder with a folder
      for each class.
    synsets: synsets of the classes; the first has label 1.
    labels: labels of the images of a tar, the first for number 1.

  Raises:
    slim.errors.DataError: there are other files, an image is missing or
      repeated, or an archive is damaged.
  """
  if not source.is_file():
    return image_folders.find(source, synsets, 1)
  items = []
  numbers = set()
  for member in archives.index(source):
    match = _VALIDATION.fullmatch(pathlib.PurePosixPath(member.name).name)
    number = int(match[1]) if match else 0
    if not 1 <= number <= len(labels):
      raise errors.DataError(
        f'{source}: expected ILSVRC2012_val_00000001.JPEG to '
        f'{len(labels):08d}.JPEG, one per label; received '
        f'{member.name!r}. Check the list of validation labels.'
      )
    if number in numbers:
      raise _repeated(source, member.name)
    numbers.add(number)
    items.append(labeled_images.Item(member, labels[number - 1]))
  if len(items) != len(labels):
    raise errors.DataError(
      f'{source}: expected {len(labels)} images, one per label; received '
      f'{len(items)}. Check the list of validation labels.'
    )
  return items


def plan(
  splits: abc.Mapping[str, abc.Sequence[labeled_images.Item]],
  file_names: abc.Mapping[str, tuple[str, ...]],
  classes: imagenet_lists.Classes,
  pixels: Pixels,
  source: str,
) -> sharding.ConversionPlan:
  """Plans the shards.

  Args:
    splits: items by split.
    file_names: names of the shards by split.
    classes: synsets, names and boxes.
    pixels: how to store an image.
    source: origin of the images, for messages.

  Returns:
    The argument of `slim.datasets.records.sharding.write`.

  Raises:
    slim.errors.DataError: `pixels` has a negative side, or a side without
      `raw`.
  """
  if pixels.side < 0 or (pixels.side and not pixels.raw):
    raise errors.DataError(
      '--resize_dimen: expected at least 0 pixels, and --raw_pixel with it; '
      f'received {pixels.side}{"" if pixels.raw else " without --raw_pixel"}. '
      'Pass --raw_pixel to resize, because JPEGs are stored unchanged.'
    )
  texts = [classes.names.get(synset, synset) for synset in classes.synsets]
  ordered = {
    split: labeled_images.shuffled(items) for split, items in splits.items()
  }
  made = labeled_images.plan(
    NAME, [image_folders.BACKGROUND, *texts], ordered, file_names, source
  )
  known = hashlib.sha256(repr((classes, pixels)).encode()).hexdigest()
  return made._replace(
    encode=lambda items: (
      _encode(item, texts, classes, pixels) for item in items
    ),
    identity=f'{known} {made.identity}',
  )


def sort_validation(folder: pathlib.Path, synsets: abc.Sequence[str]) -> int:
  """Moves the validation images of a folder into a folder for each class.

  Images that an earlier run moved stay where they are.

  Args:
    folder: the folder of `ILSVRC2012_val_<number>.JPEG`.
    synsets: synsets of the images, the first for number 1.

  Returns:
    The number of images that were moved.

  Raises:
    slim.errors.DataError: an image is missing, in which case none is moved;
      or an image cannot be moved.
  """
  moves = []
  for number, synset in enumerate(synsets, 1):
    name = f'ILSVRC2012_val_{number:08d}.JPEG'
    old, new = folder / name, folder / synset / name
    if old.is_file():
      moves.append((old, new))
    elif not new.is_file():
      raise errors.DataError(
        f'{old}: expected the image of line {number} of the labels, here or in '
        f'the subfolder {synset}/; received neither. Unpack '
        'ILSVRC2012_img_val.tar into the folder.'
      )
  try:
    for old, new in moves:
      new.parent.mkdir(exist_ok=True)
      old.rename(new)
  except OSError as error:
    raise errors.DataError(
      f'{folder}: expected a writable folder; received "{error}". Correct '
      'this and run the command again.'
    ) from error
  return len(moves)


def _repeated(source: pathlib.Path, name: str) -> errors.DataError:
  return errors.DataError(
    f'{source}: expected each class and each image once; received {name!r} '
    'again. Download the archive again, or remove the repeated member.'
  )


def _encode(
  item: labeled_images.Item,
  texts: abc.Sequence[str],
  classes: imagenet_lists.Classes,
  pixels: Pixels,
) -> bytes | shard_writer.Unreadable:
  # EXIF orientation is ignored: boxes refer to the stored image, and other
  # published results use stored images, too.
  make = functools.partial(images.to_jpeg, upright=False)
  if pixels.raw:
    make = functools.partial(images.to_pixels, side=pixels.side, upright=False)
  image = labeled_images.read(item, make)
  if isinstance(image, shard_writer.Unreadable):
    return image
  name = pathlib.PurePosixPath(item.file.name).name
  boxes = classes.boxes.get(name, ())
  size = (image.height, image.width, 3)
  kind = b'RAW' if pixels.raw else b'JPEG'
  return features.serialize(
    {
      **features.image_features(kind, size, item.label, texts[item.label - 1]),
      **features.box_features(boxes),
      'image/class/synset': features.bytes_feature(
        classes.synsets[item.label - 1].encode()
      ),
      'image/object/bbox/label': features.int_feature(
        *[item.label] * len(boxes)
      ),
      'image/filename': features.bytes_feature(os.fsencode(name)),
      features.IMAGE: features.bytes_feature(image.content),
    }
  )
