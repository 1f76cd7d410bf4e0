"""Writes an image database, as Caffe2 reads it, from a folder or TFRecords."""

import dataclasses
import pathlib

from absl import logging

from slim import errors
from slim.datasets import catalog
from slim.datasets import labels
from slim.datasets.files import databases
from slim.datasets.records import disk
from terngrad import lazy
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli.convert import writing
from terngrad.config import options

write_db = lazy.module('slim.datasets.write_db')

USAGE = """\
{program}: writes an image database, as Caffe2's trainer read it.

  {program} --dataset_name=image_folder --dataset_dir=D \\
      --subset=train --output_db=O/train

D has an image folder D/train/<class> for each class. Two classes of ImageNet:

  {program} --dataset_name=imagenet --dataset_dir=D \\
      --classes=n02958343,n02858304 --examples_per_class=640 --output_db=O/train

Train on the database with resnet50_trainer --train_data=O/train, or with any
trainer by --dataset_name=image_db --data_dir=O --subset=train.
"""

_SOURCES = {
  name: dataset
  for name, dataset in catalog.DATASETS.items()
  if dataset.storage != 'database'
}

option = options.option


@dataclasses.dataclass(frozen=True)
class Flags:
  """The flags."""

  dataset_name: str = option(
    '',
    f'What to read: {", ".join(sorted(_SOURCES))}. image_folder is a folder '
    '<dataset_dir>/<subset>/<class>/*, the others are TFRecord files.',
  )
  dataset_dir: str = option('', 'Folder to read.')
  subset: str = option('train', 'Split to read.')
  output_db: str = option('', 'Database to make; must not exist.')
  db_type: str = option(
    'lmdb', f'Kind of database: {", ".join(databases.KINDS)}.'
  )
  classes: tuple = option(
    (),
    'Classes to take, by name, by first word as n02958343, or by label, with '
    'commas; their labels are 0, 1, ... in this order. Empty: all as they are.',
  )
  examples_per_class: int = option(
    0, 'The first so many images of each of --classes; 0: all.'
  )
  shuffle: bool = option(
    False, 'Number the images in another order than they have.'
  )
  seed: int = option(1, 'Of that order.')
  verify: bool = option(
    False, 'Write nothing; compare every record of the database that is there.'
  )


def act(values: Flags) -> None:
  """Makes the database that the flags ask for.

  Args:
    values: the flags.

  Raises:
    slim.errors.DataError: the data cannot be used.
    terngrad.errors.ConfigError: a flag cannot have its value.
  """
  options.choice('db_type', values.db_type, databases.KINDS)
  options.at_least('seed', values.seed, 0)
  dataset = errors.lookup(_SOURCES, values.dataset_name, 'data set')
  options.at_least('examples_per_class', values.examples_per_class, 0)
  images = write_db.images_of(dataset, values.dataset_dir, values.subset)
  if values.classes:
    images = write_db.of_classes(
      images, values.classes, values.examples_per_class
    )
  elif values.examples_per_class:
    raise flags.UsageError(
      '--examples_per_class: expected --classes beside it, received none. Name '
      'the classes, or leave it out.'
    )
  shuffle_seed = values.seed if values.shuffle else None
  if values.verify:
    count = write_db.verify(images, values.output_db, shuffle_seed)
    command.say(f'{values.output_db}: {count} images, all as in the data set.')
    return
  count = write_db.write(
    images,
    values.output_db,
    kind=values.db_type,
    shuffle_seed=shuffle_seed,
  )
  _keep_labels(images.labels, pathlib.Path(values.output_db).parent)
  command.say(f'Wrote {values.output_db}: {count} images, {values.db_type}.')


def _keep_labels(names, folder):
  """Writes labels.txt beside the database, where readers look for it."""
  path = folder / labels.FILE_NAME
  if names is None:
    return
  known = labels.read(folder, first_label=0)
  if known is None:
    lines = (f'{label}:{name}\n' for label, name in sorted(names.items()))
    disk.write_text(path, ''.join(lines))
  elif known != names:
    logging.warning(
      '%s names other classes and was kept; correct it, or put databases of '
      'other classes into other folders.',
      path,
    )


COMMAND = writing.converter(
  USAGE, Flags, act, required=('dataset_name', 'dataset_dir', 'output_db')
)
