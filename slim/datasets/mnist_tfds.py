"""Fetches MNIST with tensorflow-datasets; runs as a process of its own.

`python -m slim.datasets.mnist_tfds FOLDER` writes FOLDER/train-images.npy,
train-labels.npy, test-images.npy and test-labels.npy. A process, because the
download has no time limit of its own and imports a great deal; its caller is
`slim.datasets.mnist_source.from_tfds`.
"""

import pathlib
import sys
import urllib.request

import numpy as np

from slim.datasets import mnist

_URL = 'https://storage.googleapis.com/cvdf-datasets/mnist/'
_CONNECT_SECONDS = 10


def check_network() -> None:
  """Fails at once where the download would retry for long.

  Raises:
    OSError: the server cannot be reached.
  """
  request = urllib.request.Request(
    f'{_URL}train-labels-idx1-ubyte.gz', method='HEAD'
  )
  urllib.request.urlopen(request, timeout=_CONNECT_SECONDS).close()


def fetch(folder: pathlib.Path) -> None:
  """Downloads MNIST and saves it as NumPy arrays.

  Args:
    folder: receives, for each split, images uint8 [N, 28, 28] and labels
      uint8 [N].
  """
  # Here, so that nobody imports it who has no network.
  import tensorflow_datasets as tfds

  builder = tfds.builder('mnist', data_dir=folder / 'tfds', try_gcs=False)
  builder.download_and_prepare()
  for split in mnist.SPLITS:
    columns = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
    np.save(folder / f'{split}-images.npy', columns['image'][..., 0])
    np.save(folder / f'{split}-labels.npy', columns['label'].astype(np.uint8))


if __name__ == '__main__':
  check_network()
  fetch(pathlib.Path(sys.argv[1]))
