"""Lists the bounding boxes in ImageNet's annotations."""

import dataclasses
import pathlib
import sys

from slim.datasets.photographs import imagenet_boxes
from slim.datasets.photographs import imagenet_lists
from terngrad.cli import command
from terngrad.config import options
from terngrad.launching import output

USAGE = """\
{program}: lists the bounding boxes of ImageNet's annotations.

  {program} ANNOTATIONS [SYNSETS] > boxes.csv

ANNOTATIONS is a folder with <synset>/<image>.xml, or the archive
ILSVRC2012_bbox_train_v2.tar.gz, which is not unpacked. SYNSETS is a file with a
synset on each line: annotations of other synsets are left out, and so are boxes
labeled with another of these synsets than their image. Lines go to standard
output, sorted; counts go to standard error.
"""

option = options.option


@dataclasses.dataclass(frozen=True)
class ConvertImagenetBoxesFlags:
  """The flags of `terngrad convert imagenet_boxes`."""

  annotations: str = option('', 'Folder or archive ANNOTATIONS.')
  synsets_file: str = option('', "File SYNSETS; '' for all annotations.")


def act(values: ConvertImagenetBoxesFlags) -> None:
  """Prints the boxes.

  Raises:
    slim.errors.DataError: a file cannot be read.
  """
  synsets = None
  if values.synsets_file:
    synsets = imagenet_lists.synsets(pathlib.Path(values.synsets_file))
  found = imagenet_boxes.process(pathlib.Path(values.annotations), synsets)
  output.say(*found.lines)
  sys.stderr.write(
    f'Read {found.files} annotations: {len(found.lines)} boxes; left out '
    f'{found.skipped_files} annotations and {found.skipped_boxes} boxes.\n'
  )


COMMAND = command.Command(
  USAGE,
  ConvertImagenetBoxesFlags,
  act,
  words=('annotations', 'synsets_file'),
  required=('annotations',),
  needs_tensorflow=False,
  is_converter=True,
)
