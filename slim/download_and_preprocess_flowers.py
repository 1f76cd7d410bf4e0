"""Fetches the flower photos and writes them as flowers_train reads them."""

import dataclasses
import pathlib
import sys

if __package__ in (None, ''):
  # Started by its path: Python then searches this folder, where a package
  # `datasets` would hide others of that name, and not the one above it.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from slim import command_line
from slim.datasets.files import downloads
from slim.datasets.photographs import convert_flowers

USAGE = """\
download_and_preprocess_flowers: writes the flower photos as shards.

  download_and_preprocess_flowers D

Takes D/flower_photos.tgz, or D/flower_photos, and downloads the former where
there is neither. Writes train-*, validation-*, labels.txt and shards.json into
D. Labels are 1 to 5; 0 is the background.
"""


@dataclasses.dataclass(frozen=True)
class Config(command_line.TwoSplits):
  """The flags."""

  output_directory: str = command_line.option('', 'Folder D.')
  source_dir: str = command_line.option(
    '', 'Folder of the archive or of the photos, where that is not D.'
  )
  validation_images: int = command_line.option(
    500, 'Images to hold out, as many of each class; always the same ones.'
  )
  verify_checksums: bool = command_line.option(
    True, 'Refuse another archive than the published one.'
  )


def main(config: Config) -> None:
  """Does what the flags ask for.

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
  folder = pathlib.Path(config.output_directory)
  source = pathlib.Path(config.source_dir) if config.source_dir else folder
  if not config.source_dir and not (folder / 'flower_photos').is_dir():
    client = downloads.Client(verify=config.verify_checksums)
    source = downloads.fetch(convert_flowers.ARCHIVE, folder, client)
  items = convert_flowers.find(source, 1, config.verify_checksums)
  splits = convert_flowers.hold_out_of_each(items, config.validation_images)
  command_line.build(
    config, convert_flowers.plan(source, splits, config.names, 1)
  )


def run() -> int:
  """Runs the program; returns the exit code."""
  return command_line.run(USAGE, Config, main, first='output_directory')


if __name__ == '__main__':
  sys.exit(run())
