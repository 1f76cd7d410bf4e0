"""Writes an image database, as Caffe2 reads it, from a folder or TFRecords.

Usage, for the folders /data/photos/train/<class>/*:

  python -m slim.make_image_db --dataset_name image_folder \
    --dataset_dir /data/photos --subset train --output_db /data/db/train

Train on it with --dataset_name image_db --data_dir /data/db --subset train.
"""

import os
import pathlib
import sys

if __package__ in (None, ''):
  # Started by its path: Python then searches this folder and not the one above.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

os.environ['TF_CPP_MIN_LOG_LEVEL'] = os.getenv('TF_CPP_MIN_LOG_LEVEL', '3')

import tensorflow as tf
from absl import app
from absl import flags

from slim import errors
from slim.datasets import catalog
from slim.datasets import labels
from slim.datasets import write_db

_SOURCES = {
  name: dataset
  for name, dataset in catalog.DATASETS.items()
  if dataset.storage != 'database'
}
_REQUIRED = ('dataset_name', 'dataset_dir', 'output_db')


def define_flags() -> None:
  """Defines the program's flags."""
  flags.DEFINE_string(
    'dataset_name',
    None,
    f'What to read: {", ".join(sorted(_SOURCES))}. image_folder is a folder '
    '<dataset_dir>/<subset>/<class>/*, the others are TFRecord files.',
  )
  flags.DEFINE_string('dataset_dir', None, 'Folder to read.')
  flags.DEFINE_string('subset', 'train', 'Split to read.')
  flags.DEFINE_string('output_db', None, 'Database to make; must not exist.')
  flags.DEFINE_enum('db_type', 'lmdb', write_db.KINDS, 'Kind of database.')
  flags.DEFINE_bool(
    'shuffle', False, 'Number the images in another order than they have.'
  )
  flags.DEFINE_integer('seed', 1, 'Of that order.', lower_bound=0)


def main(argv: list[str]) -> int:
  """Makes the database that the flags ask for.

  Args:
    argv: the program's name, and nothing else.

  Returns:
    The exit code: 0, 1 for data that cannot be used, 2 for bad arguments.
  """
  options = flags.FLAGS
  try:
    dataset = _check_arguments(argv, options)
  except errors.DataError as error:
    return _fail(error, 2)
  tf.config.set_visible_devices([], 'GPU')
  try:
    images = write_db.images_of(dataset, options.dataset_dir, options.subset)
    count = write_db.write(
      images,
      options.output_db,
      kind=options.db_type,
      shuffle_seed=options.seed if options.shuffle else None,
    )
    _keep_labels(images.labels, pathlib.Path(options.output_db).parent)
  except errors.DataError as error:
    return _fail(error, 1)
  print(f'Wrote {options.output_db}: {count} images, {options.db_type}.')
  return 0


def _check_arguments(argv, options):
  """Returns the data set to read."""
  if argv[1:]:
    raise errors.DataError(
      f'Arguments: expected only flags; received {" ".join(argv[1:])}. '
      'Write --name value.'
    )
  for name in _REQUIRED:
    if not options[name].value:
      raise errors.DataError(
        f'--{name}: expected a value; received none. See --help.'
      )
  return errors.lookup(_SOURCES, options.dataset_name, 'data set')


def _keep_labels(names, folder):
  """Writes labels.txt beside the database, where readers look for it."""
  path = folder / labels.FILE_NAME
  if names is None:
    return
  known = labels.read(folder, first_label=0)
  if known is None:
    lines = (f'{label}:{name}\n' for label, name in sorted(names.items()))
    path.write_text(''.join(lines), encoding='utf-8')
  elif known != names:
    print(
      f'make_image_db: {path} names other classes and was kept; correct it, or '
      'put databases of other classes into other folders.',
      file=sys.stderr,
    )


def _fail(error: errors.DataError, code: int) -> int:
  print(f'make_image_db: {error}', file=sys.stderr)
  return code


def run() -> None:
  """Runs the program; the entry point of the console script."""
  define_flags()
  app.run(main)


if __name__ == '__main__':
  run()
