"""Lists the bounding boxes of ImageNet annotations."""

import pathlib
import sys

if __package__ in (None, ''):
  # Started by its path: Python then searches this folder, where a package
  # `datasets` would hide others of that name, and not the one above it.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from slim import command_line
from slim.datasets.photographs import imagenet_boxes
from slim.datasets.photographs import imagenet_lists

USAGE = """\
process_bounding_boxes: lists the bounding boxes of ImageNet's annotations.

  process_bounding_boxes ANNOTATIONS [SYNSETS] > boxes.csv

ANNOTATIONS is a folder with <synset>/<image>.xml, or the archive
ILSVRC2012_bbox_train_v2.tar.gz, which is not unpacked. With SYNSETS, a file
with a synset on each line, other annotations are left out, and boxes labeled
with another of these synsets than their image. Lines go to standard output,
sorted; counts go to standard error.
"""


def main(annotations: str, synsets_file: str = '') -> None:
  """Prints the boxes.

  Args:
    annotations: folder or archive.
    synsets_file: list of the classes, or ''.

  Raises:
    slim.errors.DataError: one of them cannot be read.
  """
  synsets = None
  if synsets_file:
    synsets = imagenet_lists.synsets(pathlib.Path(synsets_file))
  found = imagenet_boxes.process(pathlib.Path(annotations), synsets)
  for line in found.lines:
    sys.stdout.write(f'{line}\n')
  sys.stderr.write(
    f'Read {found.files} annotations: {len(found.lines)} boxes; left out '
    f'{found.skipped_files} annotations and {found.skipped_boxes} boxes.\n'
  )


def run() -> int:
  """Runs the program; returns the exit code."""
  return command_line.run_words(USAGE, main, 1, 2)


if __name__ == '__main__':
  sys.exit(run())
