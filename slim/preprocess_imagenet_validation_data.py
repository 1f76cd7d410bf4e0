"""Sorts ImageNet validation images into a folder for each class."""

import pathlib
import sys

if __package__ in (None, ''):
  # Started by its path: Python then searches this folder, where a package
  # `datasets` would hide others of that name, and not the one above it.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from slim import command_line
from slim.datasets.photographs import imagenet
from slim.datasets.photographs import imagenet_lists

USAGE = """\
preprocess_imagenet_validation_data: sorts validation images by class.

  preprocess_imagenet_validation_data FOLDER LABELS

FOLDER has ILSVRC2012_val_00000001.JPEG and so on; LABELS the synset of each,
one a line. Each image is moved into FOLDER/<synset>. Run again, it goes on
where it was stopped. (build_imagenet_data needs this only for unpacked images.)
"""


def main(folder: str, labels_file: str) -> None:
  """Moves the images.

  Args:
    folder: of the images.
    labels_file: list of their synsets.

  Raises:
    slim.errors.DataError: an image is missing or cannot be moved.
  """
  synsets = imagenet_lists.image_synsets(pathlib.Path(labels_file))
  moved = imagenet.sort_validation(pathlib.Path(folder), synsets)
  command_line.say(
    f'Moved {moved} of {len(synsets)} images into {len(set(synsets))} folders '
    f'in {folder}.'
  )


def run() -> int:
  """Runs the program; returns the exit code."""
  return command_line.run_words(USAGE, main, 2, 2)


if __name__ == '__main__':
  sys.exit(run())
