"""Writes packed or unpacked ImageNet images as shards."""

import dataclasses
import pathlib

from slim.datasets.photographs import imagenet_boxes
from slim.datasets.photographs import imagenet_lists
from terngrad import lazy
from terngrad.cli import command
from terngrad.cli.convert import writing
from terngrad.config import options

imagenet = lazy.module('slim.datasets.photographs.imagenet')

USAGE = """\
{program}: writes ImageNet as shards of TFRecord files.

  {program} --train_directory=T --validation_directory=V \\
    --output_directory=O --labels_file=synsets.txt \\
    --imagenet_metadata_file=M --bounding_box_file=B.csv

T and V have a folder for each synset (`terngrad convert imagenet_validation`
makes those of V). T or V may also be the tar that image-net.org publishes,
which is not unpacked; for V then give --validation_labels_file.
"""

option = options.option


@dataclasses.dataclass(frozen=True)
class ConvertImagenetFlags(writing.TwoSplits):
  """The flags of `terngrad convert imagenet`."""

  train_directory: str = option('', 'Folder, or tar, of the training images.')
  validation_directory: str = option(
    '', "Folder, or tar, of the validation images; '' for none."
  )
  output_directory: str = option('', 'Folder to write into.')
  raw_pixel: bool = option(False, 'Store pixels in RGB instead of JPEGs.')
  resize_dimen: int = option(
    0, 'With raw_pixel: resize to this height and width; 0 keeps them.'
  )
  train_shards: int = option(1024, 'Files of the training split.', 'shards')
  validation_shards: int = option(
    128, 'Files of the validation split.', 'shards'
  )
  labels_file: str = option(
    'imagenet_lsvrc_2015_synsets.txt',
    'File with a synset on each line; the first has label 1.',
  )
  imagenet_metadata_file: str = option(
    'imagenet_metadata.txt',
    "File with a synset, a tab and its names on each line; '' for none.",
  )
  bounding_box_file: str = option(
    './imagenet_2012_bounding_boxes.csv',
    "File of boxes from `terngrad convert imagenet_boxes`; '' for none.",
  )
  validation_labels_file: str = option(
    '', 'If V is a tar: file with the synset of each of its images.'
  )


def act(values: ConvertImagenetFlags) -> None:
  """Converts ImageNet.

  Raises:
    slim.errors.DataError: the data cannot be used.
    terngrad.cli.flags.UsageError: a flag is missing.
  """
  command.require(values, 'train_directory', 'labels_file')
  synsets = imagenet_lists.synsets(pathlib.Path(values.labels_file))
  metadata, boxes = values.imagenet_metadata_file, values.bounding_box_file
  classes = imagenet_lists.Classes(
    synsets,
    imagenet_lists.names(pathlib.Path(metadata)) if metadata else {},
    imagenet_boxes.read(pathlib.Path(boxes)) if boxes else {},
  )
  train = pathlib.Path(values.train_directory)
  splits = {'train': imagenet.training_items(train, synsets)}
  if values.validation_directory:
    validation = pathlib.Path(values.validation_directory)
    labels: list[int] = []
    if validation.is_file():
      command.require(values, 'validation_labels_file')
      labels = imagenet_lists.validation_labels(
        pathlib.Path(values.validation_labels_file), synsets
      )
    splits['validation'] = imagenet.validation_items(
      validation, synsets, labels
    )
  pixels = imagenet.Pixels(values.raw_pixel, values.resize_dimen)
  writing.build(
    values, imagenet.plan(splits, values.names, classes, pixels, str(train))
  )


COMMAND = writing.converter(
  USAGE, ConvertImagenetFlags, act, folder='output_directory'
)
