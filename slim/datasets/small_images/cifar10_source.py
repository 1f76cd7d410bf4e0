"""Sources of CIFAR-10: its published archives, or the network."""

import functools
import pathlib
from collections import abc

import numpy as np

from slim import errors
from slim.datasets.files import archives
from slim.datasets.files import pickles
from slim.datasets.small_images import arrays

BINARY = 'cifar-10-binary.tar.gz'
PYTHON = 'cifar-10-python.tar.gz'

# Digests of the archives that Krizhevsky publishes.
SHA256 = {
  BINARY: 'c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd',
  PYTHON: '6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce',
}

FACTS = arrays.Facts(
  'cifar10',
  'CIFAR-10',
  (
    'airplane',
    'automobile',
    'bird',
    'cat',
    'deer',
    'dog',
    'frog',
    'horse',
    'ship',
    'truck',
  ),
  (32, 32, 3),
  ('train', 'test'),
  tfds_seconds=600,  # 170 MB
)

_BATCHES = {
  'train': [f'data_batch_{i}' for i in range(1, 6)],
  'test': ['test_batch'],
}
_PIXEL_BYTES = 3 * 32**2
_ROW_BYTES = 1 + _PIXEL_BYTES  # the label comes first
# Five times the size of the images; pickles contain file names, too.
_LIMIT = 5 * 60_000 * _ROW_BYTES

# Pixels, uint8 [N, _PIXEL_BYTES], and labels, uint8 [N].
_Batch = tuple[np.ndarray, np.ndarray]


def from_binary(request: arrays.SourceOptions) -> arrays.ArraySource:
  """Reads cifar-10-binary.tar.gz.

  Args:
    request: source_dir must be a folder with the archive.

  Returns:
    The data set, in the order of the archive.

  Raises:
    slim.errors.DataError: the archive is missing or damaged, is not the
      published one, or holds incomplete images.
  """

  def read(name: str, content: bytes) -> _Batch:
    if not content or len(content) % _ROW_BYTES:
      raise errors.DataError(
        f'{name}: expected images of {_ROW_BYTES} bytes; received '
        f'{len(content)} bytes. Download {BINARY} again.'
      )
    rows = np.frombuffer(content, np.uint8).reshape(-1, _ROW_BYTES)
    return rows[:, 1:], rows[:, 0]

  return _source(request, BINARY, 'cifar-10-batches-bin/{}.bin', read)


def from_python(request: arrays.SourceOptions) -> arrays.ArraySource:
  """Reads cifar-10-python.tar.gz, without running code that its pickles name.

  Args:
    request: source_dir must be a folder with the archive.

  Returns:
    The data set, in the order of the archive.

  Raises:
    slim.errors.DataError: as `from_binary`.
  """

  def read(name: str, content: bytes) -> _Batch:
    batch = pickles.load(content, name)
    try:
      pixels, labels = batch[b'data'], np.array(batch[b'labels'], np.uint8)
      return pixels.reshape(-1, _PIXEL_BYTES), labels
    except (
      AttributeError,
      KeyError,
      OverflowError,
      TypeError,
      ValueError,
    ) as error:
      raise errors.DataError(
        f'{name}: expected images at key data, labels at key labels; received '
        f'{error!r}. Download {PYTHON} again.'
      ) from error

  return _source(request, PYTHON, 'cifar-10-batches-py/{}', read)


from_tfds = functools.partial(arrays.from_tfds, FACTS)


def from_best(request: arrays.SourceOptions) -> arrays.ArraySource:
  """Reads an archive if a folder is given; otherwise downloads.

  Args:
    request: if source_dir is set, only its archives are used, the binary one
      first.

  Raises:
    slim.errors.DataError: no source is available.
  """
  if not request.source_dir:
    return from_tfds(request)
  if (pathlib.Path(request.source_dir) / BINARY).is_file():
    return from_binary(request)
  return from_python(request)


SOURCES: arrays.Sources = {
  'auto': from_best,
  'binary': from_binary,
  'python': from_python,
  'tfds': from_tfds,
}


def _contents(
  path: pathlib.Path, names: abc.Collection[str]
) -> dict[str, bytes]:
  """Reads the named batches of an archive; returns {name: content}."""
  found = dict(archives.files(path, _LIMIT, names.__contains__))
  missing = sorted(set(names).difference(found))
  if missing:
    raise errors.DataError(
      f'{path}: expected an archive with {", ".join(missing)}; received one '
      'without. Download it again.'
    )
  return found


def _source(
  request: arrays.SourceOptions,
  archive: str,
  pattern: str,
  read: abc.Callable[[str, bytes], _Batch],
) -> arrays.ArraySource:
  """Reads an archive; `read` parses each batch."""
  path = pathlib.Path(request.source_dir or '.') / archive
  if not request.source_dir or not path.is_file():
    raise errors.DataError(
      f'{path.parent}: expected {BINARY} or {PYTHON}; received neither. '
      'Download one of them, and pass its folder with --source_dir.'
    )
  if request.verify_checksums:
    with archives.refusing_damage(path):
      archives.check_hash(path, 'sha256', SHA256[archive])
  names = {
    split: [pattern.format(stem) for stem in stems]
    for split, stems in _BATCHES.items()
  }
  contents = _contents(path, sum(names.values(), []))
  splits = {}
  for split, file_names in names.items():
    parts = [read(f'{path}, {name}', contents[name]) for name in file_names]
    pixels = np.concatenate([part[0] for part in parts])
    # The archives hold all red values of an image, then green, then blue.
    images = pixels.reshape(-1, *FACTS.shape[2:], *FACTS.shape[:2])
    splits[split] = arrays.check_split(
      FACTS,
      arrays.SplitArrays(
        np.ascontiguousarray(images.transpose(0, 2, 3, 1)),
        np.concatenate([part[1] for part in parts]),
      ),
      f'{path}, {split}',
    )
  return arrays.ArraySource(str(path), splits)
