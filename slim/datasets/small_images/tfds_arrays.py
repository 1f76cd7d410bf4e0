"""Downloads small images with tensorflow-datasets, as a separate process.

`python -m slim.datasets.small_images.tfds_arrays NAME FOLDER` writes
FOLDER/train-images.npy, train-labels.npy, test-images.npy and test-labels.npy.
It is a process because the download has no time limit and imports many
modules. `slim.datasets.small_images.arrays.from_tfds` starts it.
"""

import pathlib
import sys
import urllib.request

import numpy as np

_IDX = tuple(
  f'{part}-{kind}-ubyte.gz'
  for part in ('train', 't10k')
  for kind in ('images-idx3', 'labels-idx1')
)
# Address of the files that tensorflow-datasets downloads, and their names.
FILES = {
  'cifar10': ('https://www.cs.toronto.edu/~kriz/', ('cifar-10-binary.tar.gz',)),
  'fashion_mnist': (
    'http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/',
    _IDX,
  ),
  'mnist': ('https://storage.googleapis.com/cvdf-datasets/mnist/', _IDX),
}

_CONNECT_SECONDS = 10
_SPLITS = ('train', 'test')


def check_network(name: str) -> None:
  """Fails quickly if a server cannot be reached; the download retries for long.

  Args:
    name: a key of `FILES`.

  Raises:
    OSError: the server cannot be reached.
  """
  address, files = FILES[name]
  request = urllib.request.Request(f'{address}{files[-1]}', method='HEAD')
  urllib.request.urlopen(request, timeout=_CONNECT_SECONDS).close()


def fetch(name: str, folder: pathlib.Path) -> None:
  """Downloads a data set and saves it as NumPy arrays.

  Args:
    name: a key of `FILES`.
    folder: output folder; receives, for each split, images uint8
      [N, height, width, channels] and labels uint8 [N].
  """
  # Imported here, so that nothing is imported without a network.
  import tensorflow_datasets as tfds

  builder = tfds.builder(name, data_dir=folder / 'tfds', try_gcs=False)
  builder.download_and_prepare()
  for split in _SPLITS:
    columns = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
    np.save(folder / f'{split}-images.npy', columns['image'])
    np.save(folder / f'{split}-labels.npy', columns['label'].astype(np.uint8))


if __name__ == '__main__':
  check_network(sys.argv[1])
  fetch(sys.argv[1], pathlib.Path(sys.argv[2]))
