"""Writes a folder of images, one folder a class, as shards."""

import dataclasses
import pathlib
import sys
import tempfile

if __package__ in (None, ''):
  # Started by its path: Python then searches this folder, where a package
  # `datasets` would hide others of that name, and not the one above it.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from slim import command_line
from slim.datasets.photographs import image_folders
from slim.datasets.photographs import labeled_images

USAGE = """\
build_image_data: writes folders of images as shards of TFRecord files.

  build_image_data --train_directory=T --validation_directory=V \\
    --output_directory=O --labels_file=labels.txt

T and V have a folder for each class, with JPEG, PNG, GIF, BMP or WebP files of
any name. Labels are 1, 2, ... in the order of the file of labels; 0 is the
background. JPEGs are checked and stored byte for byte; other formats, CMYK, and
photos that EXIF says to turn are stored as JPEG of quality 100.
"""

_TEMPORARY = tempfile.gettempdir()


@dataclasses.dataclass(frozen=True)
class Config(command_line.TwoSplits):
  """The flags."""

  train_directory: str = command_line.option(
    _TEMPORARY, 'Folder of the training images.'
  )
  validation_directory: str = command_line.option(
    _TEMPORARY, "Folder of the validation images; '' for none."
  )
  output_directory: str = command_line.option(
    _TEMPORARY, 'Folder to write into.'
  )
  labels_file: str = command_line.option(
    '',
    'File with the name of a class on each line; without it, the names of the '
    'folders in train_directory, sorted.',
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
  command_line.require(config, 'train_directory')
  train = pathlib.Path(config.train_directory)
  if config.labels_file:
    names = image_folders.read_labels(pathlib.Path(config.labels_file))
  else:
    names = image_folders.class_folders(train)
  folders = {'train': train}
  if config.validation_directory:
    # 2017 wrote validation first; the order in shards.json is of no meaning.
    folders['validation'] = pathlib.Path(config.validation_directory)
  splits = {
    split: labeled_images.shuffled(image_folders.find(folder, names, 1))
    for split, folder in folders.items()
  }
  plan = labeled_images.plan(
    'images',
    [image_folders.BACKGROUND, *names],
    splits,
    config.names,
    str(train),
  )
  command_line.build(config, plan)


def run() -> int:
  """Runs the program; returns the exit code."""
  return command_line.run(USAGE, Config, main)


if __name__ == '__main__':
  sys.exit(run())
