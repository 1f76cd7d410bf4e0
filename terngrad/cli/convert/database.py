"""Writes an image database for Caffe2 from a directory or TFRecords."""

import dataclasses
import pathlib

from slim import errors
from slim.datasets import catalog
from slim.datasets import labels
from slim.datasets.files import databases
from slim.datasets.records import disk
from terngrad import lazy
from terngrad.cli import command
from terngrad.cli.convert import writing
from terngrad.config import options

write_db = lazy.module('slim.datasets.write_db')

USAGE = """\
{program}: writes an image database, as Caffe2's trainer reads it.

  {program} --dataset_name=image_folder --dataset_dir=D \\
      --subset=train --output_db=O/train

D has a folder of images D/train/<class> for each class. The classes are those
of D/labels.txt or, without this file, of D/train; a split may lack some of
them. Upright JPEG and PNG files are stored unchanged. Photos with an EXIF
rotation, images with transparency and other formats become JPEG of quality 95.
Two classes of ImageNet:

  {program} --dataset_name=imagenet --dataset_dir=D \\
      --classes=n02958343,n02858304 --examples_per_class=640 --output_db=O/train

Train on the database with `terngrad train resnet50 --train_data=O/train`, or
with any trainer by --dataset_name=image_db --data_dir=O --subset=train.
"""

_SOURCES = {
  name: dataset
  for name, dataset in catalog.DATASETS.items()
  if dataset.storage in ('records', 'folder')
}

option = options.option


@dataclasses.dataclass(frozen=True)
class ConvertDatabaseFlags:
  """The flags of `terngrad convert database`."""

  dataset_name: str = option(
    '',
    f'Data set to read: {", ".join(sorted(_SOURCES))}. image_folder is a '
    'folder <dataset_dir>/<subset>/<class>/*, the others are TFRecord files.',
  )
  dataset_dir: str = option('', 'Folder to read.')
  subset: str = option('train', 'Split to read.')
  output_db: str = option('', 'Database to write; must not exist.')
  db_type: str = option(
    'lmdb', f'Kind of database: {", ".join(databases.KINDS)}.'
  )
  classes: tuple[str, ...] = option(
    (),
    'Classes to include, by name, by first word such as n02958343, or by '
    'label, separated by commas; their labels become 0, 1, ... in this order. '
    'Empty: all classes, with unchanged labels.',
  )
  examples_per_class: int = option(
    0, 'Use only this many images of each of --classes, the first; 0: all.'
  )
  shuffle: bool = option(False, 'Write the images in random order.')
  seed: int = option(1, 'Random seed of --shuffle.')
  skip_corrupt: bool = option(
    False, 'Skip unreadable files of a folder instead of failing.'
  )
  verify: bool = option(
    False, 'Write nothing; compare every record of the existing database.'
  )
  given: frozenset[str] = frozenset()  # the flags of the command line


def act(values: ConvertDatabaseFlags) -> None:
  """Writes or verifies the database.

  Raises:
    slim.errors.DataError: the data cannot be used.
    terngrad.errors.ConfigError: a flag has an invalid value.
    terngrad.cli.flags.UsageError: a flag would have no effect.
  """
  options.choice('db_type', values.db_type, databases.KINDS)
  options.at_least('seed', values.seed, 0)
  dataset = errors.lookup(_SOURCES, values.dataset_name, 'data set')
  for name, needed, is_met in (
    ('seed', '--shuffle', values.shuffle),
    ('examples_per_class', '--classes', bool(values.classes)),
    (
      'skip_corrupt',
      '--dataset_name=image_folder',
      dataset.storage == 'folder',
    ),
  ):
    command.require_beside(values, name, needed, is_met)
  options.at_least('examples_per_class', values.examples_per_class, 0)
  images = write_db.open_images(
    dataset, values.dataset_dir, values.subset, values.skip_corrupt
  )
  writing.report_skipped(images.skipped)
  if values.classes:
    images = write_db.select_classes(
      images, values.classes, values.examples_per_class
    )
  shuffle_seed = values.seed if values.shuffle else None
  if values.verify:
    count = write_db.verify(images, values.output_db, shuffle_seed)
    command.say(f'{values.output_db}: {count} images, all as in the data set.')
    return
  labels_path = pathlib.Path(values.output_db).parent / labels.FILE_NAME
  stored = labels.read(labels_path.parent, first_label=0) or {}
  names = _merge_names(stored, images.labels or {}, labels_path)
  count = write_db.write(
    images,
    values.output_db,
    kind=values.db_type,
    shuffle_seed=shuffle_seed,
  )
  if names != stored:
    lines = (f'{label}:{name}\n' for label, name in sorted(names.items()))
    disk.write_text(labels_path, ''.join(lines))
  command.say(f'Wrote {values.output_db}: {count} images, {values.db_type}.')


def _merge_names(
  stored: dict[int, str], names: dict[int, str], path: pathlib.Path
) -> dict[int, str]:
  """Returns the class names of all databases beside labels.txt.

  Args:
    stored: the classes of labels.txt.
    names: the classes of the images to write.
    path: path of labels.txt, for the message.

  Raises:
    slim.errors.DataError: they have different names for a label.
  """
  if any(stored.get(label, name) != name for label, name in names.items()):
    raise errors.DataError(
      f'{path}: expected the classes of the images, {labels.listed(names)}; '
      f'received {labels.listed(stored)}. Readers would confuse classes: put '
      'databases of other classes into other folders, or remove the file if '
      'no database there needs it.'
    )
  return stored | names


COMMAND = writing.converter(
  USAGE,
  ConvertDatabaseFlags,
  act,
  required=('dataset_name', 'dataset_dir', 'output_db'),
  given='given',
)
