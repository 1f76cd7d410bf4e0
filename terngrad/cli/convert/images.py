"""Writes images in one directory per class as shards."""

import dataclasses
import pathlib

from terngrad import lazy
from terngrad.cli import command
from terngrad.cli.convert import writing
from terngrad.config import options

image_folders = lazy.module('slim.datasets.photographs.image_folders')
labeled_images = lazy.module('slim.datasets.photographs.labeled_images')

USAGE = """\
{program}: writes folders of images as shards of TFRecord files.

  {program} --train_directory=T --validation_directory=V \\
    --output_directory=O --labels_file=labels.txt

T and V have a folder for each class, with JPEG, PNG, GIF, BMP or WebP files of
any name. Labels are 1, 2, ... in the order of labels.txt; 0 is the background.
JPEGs are checked and stored byte for byte; other formats, CMYK, and photos with
an EXIF rotation become JPEG of quality 95.
"""

option = options.option


@dataclasses.dataclass(frozen=True)
class ConvertImagesFlags(writing.TwoSplits):
  """The flags of `terngrad convert images`."""

  train_directory: str = option('', 'Folder of the training images.')
  validation_directory: str = option(
    '', "Folder of the validation images; '' for none."
  )
  output_directory: str = option('', 'Folder to write into.')
  labels_file: str = option(
    '',
    'File with the name of a class on each line; empty: the names of the '
    'folders in --train_directory, sorted.',
  )


def act(values: ConvertImagesFlags) -> None:
  """Converts the images.

  Raises:
    slim.errors.DataError: the data cannot be used.
    terngrad.cli.flags.UsageError: a flag is missing.
  """
  command.require(values, 'train_directory')
  train = pathlib.Path(values.train_directory)
  if values.labels_file:
    names = image_folders.read_labels(pathlib.Path(values.labels_file))
  else:
    names = image_folders.class_folders(train)
  folders = {'train': train}
  if values.validation_directory:
    # The 2017 program wrote validation first. The order of the splits in
    # shards.json has no meaning.
    folders['validation'] = pathlib.Path(values.validation_directory)
  splits = {
    split: labeled_images.shuffled(image_folders.find(folder, names, 1))
    for split, folder in folders.items()
  }
  plan = labeled_images.plan(
    'images',
    [image_folders.BACKGROUND, *names],
    splits,
    values.names,
    str(train),
  )
  writing.build(values, plan)


COMMAND = writing.converter(
  USAGE, ConvertImagesFlags, act, folder='output_directory'
)
