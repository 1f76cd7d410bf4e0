"""Sorts ImageNet's validation images into one directory per class."""

import dataclasses
import pathlib

from slim.datasets.photographs import imagenet_lists
from terngrad import lazy
from terngrad.cli import command
from terngrad.cli.convert import writing
from terngrad.config import options

imagenet = lazy.module('slim.datasets.photographs.imagenet')

USAGE = """\
{program}: sorts validation images by class.

  {program} FOLDER LABELS

FOLDER has ILSVRC2012_val_00000001.JPEG and so on; LABELS has the synset of each
image, one per line. Each image is moved into FOLDER/<synset>. If the command
was stopped, run it again to continue. (`terngrad convert imagenet` needs this
only for unpacked images.)
"""

option = options.option


@dataclasses.dataclass(frozen=True)
class ConvertImagenetValidationFlags:
  """The flags of `terngrad convert imagenet_validation`."""

  folder: str = option('', 'Folder FOLDER of the images.')
  labels_file: str = option('', 'File LABELS with the synset of each image.')


def act(values: ConvertImagenetValidationFlags) -> None:
  """Moves the images.

  Raises:
    slim.errors.DataError: an image is missing or cannot be moved.
  """
  synsets = imagenet_lists.image_synsets(pathlib.Path(values.labels_file))
  moved = imagenet.sort_validation(pathlib.Path(values.folder), synsets)
  command.say(
    f'Moved {moved} of {len(synsets)} images into {len(set(synsets))} folders '
    f'in {values.folder}.'
  )


_WORDS = ('folder', 'labels_file')

COMMAND = writing.converter(
  USAGE, ConvertImagenetValidationFlags, act, words=_WORDS, required=_WORDS
)
