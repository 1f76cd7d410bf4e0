"""Reads MNIST and variants that are published in its format."""

import pathlib
from collections import abc

import numpy as np

from slim import errors
from slim.datasets.files import idx
from slim.datasets.small_images import arrays

_STEMS = {'train': 'train', 'test': 't10k'}


def from_idx(
  facts: arrays.Facts,
  sha256: abc.Mapping[str, str],
  request: arrays.SourceOptions,
) -> arrays.ArraySource:
  """Reads the four idx files of a folder, each with or without `.gz`.

  Args:
    facts: constants of the data set.
    sha256: digest of each uncompressed file, by its name without `.gz`.
      Digests of compressed files would change with every recompression.
    request: source_dir must be a folder.

  Raises:
    slim.errors.DataError: there is no folder, a file is missing or malformed,
      a checksum differs, or images and labels do not fit.
  """
  if not request.source_dir:
    raise errors.DataError(
      'Source idx: expected a folder with '
      f'{", ".join(f"{name}.gz" for name in sha256)}; received none. Pass it '
      'with --source_dir.'
    )
  folder = pathlib.Path(request.source_dir)
  expected = sha256 if request.verify_checksums else {}
  splits = {}
  for split, stem in _STEMS.items():
    names = (f'{stem}-images-idx3-ubyte', f'{stem}-labels-idx1-ubyte')
    images = _read(facts, folder, names[0], facts.shape[:2], expected)
    labels = _read(facts, folder, names[1], (), expected)
    splits[split] = arrays.check_split(
      facts, arrays.SplitArrays(images, labels), f'{folder}, {split}'
    )
  return arrays.ArraySource(f'idx files in {folder}', splits)


def _read(
  facts: arrays.Facts,
  folder: pathlib.Path,
  name: str,
  item_shape: tuple[int, ...],
  sha256: abc.Mapping[str, str],
) -> np.ndarray:
  """Reads `name` or `name`.gz and checks its digest if one is expected."""
  paths = [folder / f'{name}.gz', folder / name]
  found = [path for path in paths if path.is_file()]
  if not found:
    raise errors.DataError(
      f'{folder}: expected {name}.gz or {name}; received neither. Download the '
      f'four files of {facts.title} into the folder, or omit --source_dir.'
    )
  content = idx.read(found[0], item_shape)
  if name in sha256 and content.sha256 != sha256[name]:
    raise errors.DataError(
      f'{found[0]}: expected sha256 {sha256[name]} of the uncompressed file; '
      f'received {content.sha256}. Download it again, or, for a variant of '
      f'{facts.title} that you trust, give --noverify_checksums.'
    )
  return content.values
