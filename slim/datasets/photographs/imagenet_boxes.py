"""Converts ImageNet's annotations to one list of bounding boxes.

A line is `<file>.JPEG,<xmin>,<ymin>,<xmax>,<ymax>`, with four decimals and
relative to the image, as in 2017.
"""

import pathlib
from collections import abc
from typing import NamedTuple
from xml.etree import ElementTree

from slim import errors
from slim.datasets.files import archives
from slim.datasets.records import progress

Box = tuple[float, float, float, float]  # xmin, ymin, xmax, ymax in [0, 1]

_SUFFIX = '.xml'
# Maximum size of all annotations, in bytes. ILSVRC's have 0.3 GB.
_LIMIT = 4 << 30
_FILE_LIMIT = 1 << 20  # bytes of one annotation


class BoxLines(NamedTuple):
  """Boxes found in annotations, with counts.

  Attributes:
    lines: sorted lines of the list, without line ends.
    files: number of annotations read.
    skipped_files: number of annotations of other synsets.
    skipped_boxes: number of empty boxes and boxes of other synsets.
  """

  lines: list[str]
  files: int
  skipped_files: int
  skipped_boxes: int


def process(
  source: pathlib.Path, synsets: abc.Collection[str] | None = None
) -> BoxLines:
  """Reads all annotations.

  Args:
    source: a folder with `<synset>/<image>.xml`, or a tar of it, compressed
      or not, which is not unpacked.
    synsets: synsets of the classes; None reads every annotation. Otherwise
      skips annotations in folders of other names, and boxes whose label is
      another class than the image's.

  Returns:
    The lines, and counts.

  Raises:
    slim.errors.DataError: the folder or archive is missing or damaged, or an
      annotation is invalid. The message names the annotation.
  """
  classes = None if synsets is None else frozenset(synsets)
  lines = []
  files = skipped_files = skipped_boxes = 0
  bar = progress.Progress(_annotations(source), desc='boxes', unit=' files')
  for name, content in bar:
    files += 1
    synset = pathlib.PurePosixPath(name).parent.name
    if classes is not None and synset not in classes:
      skipped_files += 1
      continue
    image = pathlib.PurePosixPath(name).stem
    for label, box in _parse(f'{source}, {name}', content):
      is_other_class = (
        classes is not None and label != synset and label in classes
      )
      if is_other_class or box is None:
        skipped_boxes += 1
        continue
      sides = ','.join(f'{side:.4f}' for side in box)
      lines.append(f'{image}.JPEG,{sides}')
  if not files:
    raise errors.DataError(
      f'{source}: expected annotations <synset>/<image>.xml; received none. '
      'Check the path.'
    )
  return BoxLines(sorted(lines), files, skipped_files, skipped_boxes)


def read(path: pathlib.Path) -> dict[str, list[Box]]:
  """Reads a list that `process` made.

  Returns:
    Boxes by image file name.

  Raises:
    slim.errors.DataError: the file is unreadable, or a line is invalid.
  """
  try:
    lines = path.read_text(encoding='utf-8-sig').splitlines()
  except (OSError, UnicodeDecodeError) as error:
    raise errors.DataError(
      f'{path}: expected a readable list of boxes; received "{error}". Make it '
      'with process_bounding_boxes.'
    ) from error
  return parse(lines, path)


def parse(lines: abc.Iterable[str], path: pathlib.Path) -> dict[str, list[Box]]:
  """Parses the lines that `process` makes.

  Args:
    lines: the lines of all images.
    path: of the file that they come from, for messages.

  Returns:
    Boxes by image file name.

  Raises:
    slim.errors.DataError: a line is invalid.
  """
  boxes: dict[str, list[Box]] = {}
  for number, line in enumerate(lines, 1):
    name, *sides = line.split(',')
    try:
      xmin, ymin, xmax, ymax = map(float, sides)
      if not (0 <= xmin <= xmax <= 1 and 0 <= ymin <= ymax <= 1):
        raise ValueError(f'sides {", ".join(sides)}')
    except ValueError as error:
      raise errors.DataError(
        f'{path}: expected lines <file>,<xmin>,<ymin>,<xmax>,<ymax> with sides '
        f'in [0, 1]; received in line {number}: {error}. Make the list again '
        'with process_bounding_boxes.'
      ) from error
    boxes.setdefault(name, []).append((xmin, ymin, xmax, ymax))
  return boxes


def _annotations(source: pathlib.Path) -> abc.Iterator[tuple[str, bytes]]:
  if source.is_dir():
    for path in sorted(source.glob(f'*/*{_SUFFIX}')):
      try:
        content = path.read_bytes()
      except OSError as error:
        raise errors.DataError(
          f'{path}: expected an annotation that can be read; received '
          f'"{error.strerror}". Repair it, or move it away.'
        ) from error
      yield f'{path.parent.name}/{path.name}', content
  else:
    yield from archives.files(
      source, _LIMIT, lambda name: name.endswith(_SUFFIX)
    )


class _Builder(ElementTree.TreeBuilder):
  """Builds a tree and refuses documents with a document type declaration.

  Only such a declaration can define entities, which may expand without limit
  or name files.
  """

  def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
    del pubid, system
    raise ValueError(f'a declaration of the document type {name!r}')


def _parse(origin: str, content: bytes) -> abc.Iterator[tuple[str, Box | None]]:
  """Yields label and box of every object; the box is None if it is empty."""
  try:
    if len(content) > _FILE_LIMIT:
      raise ValueError(f'{len(content)} bytes')
    parser = ElementTree.XMLParser(target=_Builder())
    root = ElementTree.fromstring(content, parser)
    width = _number(root, 'size/width')
    height = _number(root, 'size/height')
    for element in root.iter('object'):
      label = (element.findtext('name') or '').strip()
      x = [_number(element, f'bndbox/x{end}') / width for end in ('min', 'max')]
      y = [
        _number(element, f'bndbox/y{end}') / height for end in ('min', 'max')
      ]
      # Some annotations have swapped corners, or corners outside the image.
      (xmin, xmax), (ymin, ymax) = map(_clamped, (x, y))
      is_empty = xmin >= xmax or ymin >= ymax
      yield label, None if is_empty else (xmin, ymin, xmax, ymax)
  except (
    ElementTree.ParseError,
    ValueError,
    ArithmeticError,
    LookupError,  # an unknown encoding
  ) as error:
    raise errors.DataError(
      f'{origin}: expected an annotation with a size and boxes; received '
      f'"{error}". Repair or remove it, or download it again.'
    ) from error


def _clamped(sides: list[float]) -> list[float]:
  return [min(max(side, 0.0), 1.0) for side in sorted(sides)]


def _number(element: ElementTree.Element, path: str) -> float:
  text = element.findtext(path)
  if text is None:
    raise ValueError(f'no {path}')
  return float(int(text))
