"""Makes converted data readable for TensorFlow Datasets."""

import dataclasses

from terngrad import lazy
from terngrad.cli import command
from terngrad.config import options

tfds_metadata = lazy.module('slim.datasets.tfds_metadata')

USAGE = """\
{program}: lets TensorFlow Datasets read the records of a converter.

  terngrad convert dataset --dataset_name=cifar10 --dataset_dir=D --shard=True
  {program} D

writes dataset_info.json and features.json into D, beside shards.json. Then
`tensorflow_datasets.builder_from_directory('D')` reads it: an example has
['image']['encoded'], decoded, and ['image']['class']['label'].
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertTfdsFlags:
  """The flags of `terngrad convert tfds`."""

  dataset_dir: str = options.option('', 'Folder of numbered shards.', 'data')


def act(values: ConvertTfdsFlags) -> None:
  """Writes the two metadata files."""
  tfds_metadata.write(values.dataset_dir)
  command.say(
    f'tensorflow_datasets.builder_from_directory({values.dataset_dir!r}) '
    'reads it.'
  )


COMMAND = command.Command(
  USAGE,
  ConvertTfdsFlags,
  act,
  words=('dataset_dir',),
  required=('dataset_dir',),
  is_converter=True,
)
