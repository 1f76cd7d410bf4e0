"""Reads the lists of ImageNet's classes.

The project contains none of them: they come with the data, or
`slim.datasets.photographs.imagenet_download` downloads them.
"""

import functools
import pathlib
import re
from typing import NamedTuple

from slim import errors
from slim.datasets.photographs import imagenet_boxes
from slim.datasets.records import label_lines

_refusal = functools.partial(
  errors.refusal,
  remedy='Check that this is the right list, or fetch it again.',
)

_SYNSET = re.compile(r'n\d{8}')


class Classes(NamedTuple):
  """The classes, and the boxes of their images.

  Attributes:
    synsets: synsets of the classes; the first has label 1.
    names: human-readable names by synset; a synset without a name is its own
      name.
    boxes: boxes of the objects, by image file name.
  """

  synsets: list[str]
  names: dict[str, str]
  boxes: dict[str, list[imagenet_boxes.Box]]


def synsets(path: pathlib.Path) -> list[str]:
  """Reads the synsets of the classes; the first has label 1.

  Args:
    path: path of a file with a synset on each line, 1000 for ILSVRC.

  Returns:
    The synsets, in the order of the file.

  Raises:
    slim.errors.DataError: the file is unreadable or empty, or a line is not a
      synset or repeats one.
  """
  found = image_synsets(path)
  if twice := label_lines.repeated(found):
    raise _refusal(path, 'each synset once', f'{twice[0]} twice')
  return found


def validation_labels(path: pathlib.Path, known: list[str]) -> list[int]:
  """Reads the classes of the validation images.

  Args:
    path: path of a file with a synset on each line, the first for
      ILSVRC2012_val_00000001.JPEG; 50,000 for ILSVRC.
    known: the synsets of the classes.

  Returns:
    Labels, from 1; that of image number n has index n - 1.

  Raises:
    slim.errors.DataError: the file is unreadable or empty, or a line is not a
      class.
  """
  labels = {synset: label for label, synset in enumerate(known, 1)}
  found = image_synsets(path)
  for number, synset in enumerate(found, 1):
    if synset not in labels:
      raise _refusal(
        path, 'synsets of the list of classes', f'{synset} in line {number}'
      )
  return [labels[synset] for synset in found]


def image_synsets(path: pathlib.Path) -> list[str]:
  """Reads the synsets of images, one per line.

  Returns:
    The synsets, in the order of the file.

  Raises:
    slim.errors.DataError: the file is unreadable or empty, or a line is not a
      synset.
  """
  lines = [line.strip() for line in _lines(path)]
  for number, line in enumerate(lines, 1):
    if not _SYNSET.fullmatch(line):
      raise _refusal(
        path, 'a synset such as n01440764', f'{line[:40]!r} in line {number}'
      )
  if not lines:
    raise _refusal(path, 'a synset on each line', 'an empty file')
  return lines


def names(path: pathlib.Path) -> dict[str, str]:
  """Reads the human-readable names of the synsets.

  Args:
    path: path of a file whose lines are a synset, a tab and its names.

  Returns:
    Names by synset.

  Raises:
    slim.errors.DataError: the file is unreadable, or a line is invalid.
  """
  found = {}
  for number, line in enumerate(_lines(path), 1):
    synset, tab, text = line.partition('\t')
    if not tab or not _SYNSET.fullmatch(synset):
      raise _refusal(
        path, 'a synset, a tab and names', f'{line[:40]!r} in line {number}'
      )
    found[synset] = text.strip()
  return found


def _lines(path: pathlib.Path) -> list[str]:
  try:
    lines = path.read_text(encoding='utf-8-sig').splitlines()
  except (OSError, UnicodeDecodeError) as error:
    raise _refusal(path, 'a readable text file', f'"{error}"') from error
  return [line for line in lines if line.strip()]
