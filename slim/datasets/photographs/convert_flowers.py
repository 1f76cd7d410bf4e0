"""Writes the flower photos of TensorFlow's tutorials as shards.

Labels start at 0, as in slim, or at 1, as terngrad's flowers_train expects;
then label 0 is the background.
"""

import functools
import pathlib
from collections import abc

from slim import errors
from slim.datasets.files import archives
from slim.datasets.files import downloads
from slim.datasets.photographs import image_folders
from slim.datasets.photographs import labeled_images
from slim.datasets.records import sharding
from slim.datasets.small_images import convert_arrays

_number_refusal = functools.partial(
  errors.refusal, '--validation_images', remedy='Give another number.'
)

NAME = 'flowers'
CLASS_NAMES = ('daisy', 'dandelion', 'roses', 'sunflowers', 'tulips')
ARCHIVE = downloads.Remote(
  'http://download.tensorflow.org/example_images/flower_photos.tgz',
  'flower_photos.tgz',
  'sha256',
  '4c54ace7911aaffe13a365c34f650e71dd5bf1be0a58b464e5a7183e3e595d9c',
)

_FOLDER = 'flower_photos'
_SPLIT_SEED = 0
_LIMIT = 1 << 30  # bytes of the unpacked archive, which is read into memory
_SUFFIX = '.jpg'


def find(
  source: pathlib.Path, first_label: int, verify_checksums: bool
) -> list[labeled_images.Item]:
  """Finds the photos of all classes.

  Args:
    source: flower_photos.tgz, or the folder flower_photos, or a folder that
      contains one of them.
    first_label: the label of the first class.
    verify_checksums: refuses an archive that differs from the published one.

  Returns:
    Items, sorted by class and name.

  Raises:
    slim.errors.DataError: the photos are missing or damaged.
  """
  archive = source if source.is_file() else source / ARCHIVE.name
  for folder in (source / _FOLDER, source):
    if (folder / CLASS_NAMES[0]).is_dir():
      return image_folders.find(folder, CLASS_NAMES, first_label)
  if not archive.is_file():
    raise errors.DataError(
      f'{source}: expected {ARCHIVE.name}, or the folder {_FOLDER} with '
      f'{", ".join(CLASS_NAMES)}; received neither. Download {ARCHIVE.url}'
    )
  if verify_checksums:
    with archives.refusing_damage(archive):
      archives.check_hash(archive, ARCHIVE.algorithm, ARCHIVE.digest)
  return _read_archive(archive, first_label)


def hold_out(
  items: abc.Sequence[labeled_images.Item], number: int
) -> dict[str, list[labeled_images.Item]]:
  """Selects validation images at random, with a fixed seed.

  Args:
    items: all images.
    number: number of validation images, at least 1 and less than all.

  Returns:
    The splits train and validation, each in random order.

  Raises:
    slim.errors.DataError: the number is out of range.
  """
  if not 1 <= number < len(items):
    raise _number_refusal(f'1 to {len(items) - 1}', number)
  order = labeled_images.shuffled(items, _SPLIT_SEED)
  return {'train': order[number:], 'validation': order[:number]}


def hold_out_of_each(
  items: abc.Sequence[labeled_images.Item], number: int
) -> dict[str, list[labeled_images.Item]]:
  """Selects the same number of validation images of each class at random.

  Args:
    items: all images.
    number: number of validation images of all classes, a multiple of the
      number of classes.

  Returns:
    The splits train and validation, each in random order.

  Raises:
    slim.errors.DataError: the number is not such a multiple, or a class is
      too small.
  """
  each, rest = divmod(number, len(CLASS_NAMES))
  if rest or number < 1:
    raise _number_refusal(f'a multiple of {len(CLASS_NAMES)}', number)
  splits: dict[str, list[labeled_images.Item]] = {'train': [], 'validation': []}
  for label in sorted({item.label for item in items}):
    class_items = [item for item in items if item.label == label]
    if each >= len(class_items):
      raise _number_refusal(
        f'less than {len(CLASS_NAMES) * len(class_items)}', number
      )
    for split, part in hold_out(class_items, each).items():
      splits[split] += part
  return {
    split: labeled_images.shuffled(part) for split, part in splits.items()
  }


def plan(
  source: pathlib.Path,
  splits: dict[str, list[labeled_images.Item]],
  file_names: dict[str, tuple[str, ...]],
  first_label: int,
) -> sharding.ConversionPlan:
  """Plans the shards of the flower photos, as `labeled_images.plan` does."""
  names = [image_folders.BACKGROUND] * first_label + list(CLASS_NAMES)
  return labeled_images.plan(NAME, names, splits, file_names, str(source))


def convert(
  folder: pathlib.Path,
  source: pathlib.Path | None,
  validation_images: int,
  layout: convert_arrays.FileLayout,
  options: sharding.ConversionOptions,
  client: downloads.Client,
) -> sharding.Report:
  """Writes the photos as slim does: labels from 0, random splits.

  Args:
    folder: output folder.
    source: as in `find`; None downloads the archive into `folder`.
    validation_images: number of images to hold out.
    layout: how to divide the examples into files.
    options: options of the conversion.
    client: options of the download and of the checksum test.

  Raises:
    slim.errors.DataError: the source is not available, or as `sharding.write`.
  """
  if source is None:
    source = downloads.fetch(ARCHIVE, folder, client)
  splits = hold_out(find(source, 0, client.verify), validation_images)
  names = convert_arrays.split_names(NAME, tuple(splits), layout)
  return sharding.write(folder, plan(source, splits, names, 0), options)


def _read_archive(
  archive: pathlib.Path, first_label: int
) -> list[labeled_images.Item]:
  """Reads the photos of the archive into memory."""
  labels = {name: i for i, name in enumerate(CLASS_NAMES, first_label)}
  items: list[labeled_images.Item] = []
  for name, content in archives.files(
    archive, _LIMIT, lambda name: name.endswith(_SUFFIX)
  ):
    path = pathlib.PurePosixPath(name)
    if path.parent.name in labels:
      member = archives.Member(
        f'{path.parent.name}/{path.name}',
        str(archive),
        len(items),
        len(content),
        content,
      )
      items.append(labeled_images.Item(member, labels[path.parent.name]))
  missing = set(labels.values()).difference(item.label for item in items)
  if missing:
    raise errors.DataError(
      f'{archive}: expected photos of {", ".join(CLASS_NAMES)}; received none '
      f'of {CLASS_NAMES[min(missing) - first_label]}. Download it again.'
    )
  return sorted(items, key=lambda item: item.file.name)
