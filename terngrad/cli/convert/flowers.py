"""Downloads the flower photos and writes them for `train flowers`."""

import dataclasses
import pathlib

from slim.datasets.files import downloads
from terngrad import lazy
from terngrad.cli.convert import writing
from terngrad.config import options

convert_flowers = lazy.module('slim.datasets.photographs.convert_flowers')

USAGE = """\
{program}: writes the flower photos as shards.

  {program} D

Reads D/flower_photos.tgz, or the folder D/flower_photos; if neither exists it
downloads the former. Writes train-*, validation-*, labels.txt and shards.json
into D. Labels are 1 to 5; 0 is the background.
"""

option = options.option


@dataclasses.dataclass(frozen=True)
class ConvertFlowersFlags(writing.TwoSplits):
  """The flags of `terngrad convert flowers`."""

  output_directory: str = option('', 'Folder D.')
  source_dir: str = option(
    '', 'Folder of the archive or of the photos; empty: D.'
  )
  validation_images: int = option(
    500, 'Validation images, as many of each class; always the same ones.'
  )
  verify_checksums: bool = option(
    True, 'Refuse an archive whose checksum differs from the published one.'
  )


def act(values: ConvertFlowersFlags) -> None:
  """Downloads and converts the flower photos.

  Raises:
    slim.errors.DataError: the data cannot be used.
  """
  folder = pathlib.Path(values.output_directory)
  source = pathlib.Path(values.source_dir) if values.source_dir else folder
  if not values.source_dir and not (folder / 'flower_photos').is_dir():
    client = downloads.Client(verify=values.verify_checksums)
    source = downloads.fetch(convert_flowers.ARCHIVE, folder, client)
  items = convert_flowers.find(source, 1, values.verify_checksums)
  splits = convert_flowers.hold_out_of_each(items, values.validation_images)
  writing.build(values, convert_flowers.plan(source, splits, values.names, 1))


COMMAND = writing.converter(
  USAGE,
  ConvertFlowersFlags,
  act,
  words=('output_directory',),
  folder='output_directory',
)
