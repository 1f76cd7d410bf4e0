"""Writes unpacked or packed ImageNet images as shards."""

import dataclasses
import pathlib
import sys
import tempfile

if __package__ in (None, ''):
  # Started by its path: Python then searches this folder, where a package
  # `datasets` would hide others of that name, and not the one above it.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from slim import command_line
from slim.datasets.photographs import imagenet
from slim.datasets.photographs import imagenet_boxes
from slim.datasets.photographs import imagenet_lists

USAGE = """\
build_imagenet_data: writes ImageNet as shards of TFRecord files.

  build_imagenet_data --train_directory=T --validation_directory=V \\
    --output_directory=O --labels_file=synsets.txt \\
    --imagenet_metadata_file=M --bounding_box_file=B.csv

T and V have a folder for each synset (preprocess_imagenet_validation_data makes
those of V). Either may be the tar as image-net.org ships it, which is read in
place; for V then give --validation_labels_file.
"""

_TEMPORARY = tempfile.gettempdir()


@dataclasses.dataclass(frozen=True)
class Config(command_line.TwoSplits):
  """The flags."""

  train_directory: str = command_line.option(
    _TEMPORARY, 'Folder, or tar, of the training images.'
  )
  validation_directory: str = command_line.option(
    _TEMPORARY, "Folder, or tar, of the validation images; '' for none."
  )
  output_directory: str = command_line.option(
    _TEMPORARY, 'Folder to write into.'
  )
  raw_pixel: bool = command_line.option(
    False, 'Store pixels in RGB instead of JPEGs.'
  )
  resize_dimen: int = command_line.option(
    0, 'With raw_pixel: resize to this height and width; 0 keeps them.'
  )
  train_shards: int = command_line.option(
    1024, 'Files of the training split.', 'shards'
  )
  validation_shards: int = command_line.option(
    128, 'Files of the validation split.', 'shards'
  )
  labels_file: str = command_line.option(
    'imagenet_lsvrc_2015_synsets.txt',
    'File with a synset on each line; the first has label 1.',
  )
  imagenet_metadata_file: str = command_line.option(
    'imagenet_metadata.txt',
    "File with a synset, a tab and its names on each line; '' for none.",
  )
  bounding_box_file: str = command_line.option(
    './imagenet_2012_bounding_boxes.csv',
    "File of boxes that process_bounding_boxes made; '' for none.",
  )
  validation_labels_file: str = command_line.option(
    '', 'File with the synset of each image of a tar of validation images.'
  )


def main(config: Config) -> None:
  """Converts what the flags ask for.

  Args:
    config: the flags.

  Raises:
    slim.errors.DataError: the data cannot be used.
    terngrad.program.flags.UsageError: a flag is missing.
  """
  command_line.require(config, 'output_directory')
  if config.verify:
    command_line.verify(config.output_directory)
    return
  command_line.require(config, 'train_directory', 'labels_file')
  synsets = imagenet_lists.synsets(pathlib.Path(config.labels_file))
  metadata, boxes = config.imagenet_metadata_file, config.bounding_box_file
  classes = imagenet.Classes(
    synsets,
    imagenet_lists.names(pathlib.Path(metadata)) if metadata else {},
    imagenet_boxes.read(pathlib.Path(boxes)) if boxes else {},
  )
  train = pathlib.Path(config.train_directory)
  splits = {'train': imagenet.training_items(train, synsets)}
  if config.validation_directory:
    validation = pathlib.Path(config.validation_directory)
    labels = []
    if validation.is_file():
      command_line.require(config, 'validation_labels_file')
      labels = imagenet_lists.validation_labels(
        pathlib.Path(config.validation_labels_file), synsets
      )
    splits['validation'] = imagenet.validation_items(
      validation, synsets, labels
    )
  pixels = imagenet.Pixels(config.raw_pixel, config.resize_dimen)
  command_line.build(
    config, imagenet.plan(splits, config.names, classes, pixels, str(train))
  )


def run() -> int:
  """Runs the program; returns the exit code."""
  return command_line.run(USAGE, Config, main)


if __name__ == '__main__':
  sys.exit(run())
