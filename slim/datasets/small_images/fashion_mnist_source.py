"""Sources of Fashion-MNIST: idx files, Debian's package, or the network."""

import functools
import pathlib

from absl import logging

from slim import errors
from slim.datasets.small_images import arrays
from slim.datasets.small_images import idx_source

# Digests of the uncompressed files that Zalando published.
SHA256 = {
  'train-images-idx3-ubyte': (
    'c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888'
  ),
  'train-labels-idx1-ubyte': (
    'bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9'
  ),
  't10k-images-idx3-ubyte': (
    '5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b'
  ),
  't10k-labels-idx1-ubyte': (
    '0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34'
  ),
}

FACTS = arrays.Facts(
  'fashion_mnist',
  'Fashion-MNIST',
  (
    'T-shirt/top',
    'Trouser',
    'Pullover',
    'Dress',
    'Coat',
    'Sandal',
    'Shirt',
    'Sneaker',
    'Bag',
    'Ankle boot',
  ),
  (28, 28, 1),
  ('train', 'test'),
)

# The folder of the four files in Debian's package dataset-fashion-mnist.
INSTALLED = '/usr/share/datasets/fashion-mnist'


from_idx = functools.partial(idx_source.from_idx, FACTS, SHA256)
from_tfds = functools.partial(arrays.from_tfds, FACTS)


def from_installed(request: arrays.SourceOptions) -> arrays.ArraySource:
  """Reads the files of Debian's package dataset-fashion-mnist.

  Args:
    request: its source_dir is not used.

  Raises:
    slim.errors.DataError: as `slim.datasets.small_images.idx_source.from_idx`.
  """
  return from_idx(request._replace(source_dir=INSTALLED))


def from_best(request: arrays.SourceOptions) -> arrays.ArraySource:
  """Reads the given folder, else Debian's package; otherwise downloads.

  Args:
    request: if source_dir is set, only its idx files are used.

  Raises:
    slim.errors.DataError: no source is available.
  """
  if request.source_dir:
    return from_idx(request)
  if pathlib.Path(INSTALLED).is_dir():
    return from_installed(request)
  logging.info('No %s; downloading with tensorflow-datasets.', INSTALLED)
  try:
    return from_tfds(request)
  except errors.DataError as error:
    raise errors.DataError(
      f'{error} Or install the package dataset-fashion-mnist of Debian.'
    ) from error


SOURCES: arrays.Sources = {
  'auto': from_best,
  'idx': from_idx,
  'installed': from_installed,
  'tfds': from_tfds,
}
