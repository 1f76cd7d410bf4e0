"""Makes small data sets in MNIST's own files, for the tests of slim."""

import gzip
import struct
from typing import NamedTuple

import numpy as np


class Arrays(NamedTuple):
  images: np.ndarray  # uint8 [N, 28, 28]
  labels: np.ndarray  # uint8 [N], 0 to 9


def arrays(count, seed):
  """Images that differ from each other, all but empty so that PNG is small."""
  random = np.random.default_rng(seed)
  images = np.zeros([count, 28, 28], np.uint8)
  images[:, 12:16, 12:16] = random.integers(0, 256, [count, 4, 4])
  return Arrays(images, random.integers(0, 10, count).astype(np.uint8))


def idx_bytes(values):
  header = struct.pack(
    f'>{2 + values.ndim - 1}I', 0x800 | values.ndim, *values.shape
  )
  return header + values.tobytes()


def write_idx(folder, train=23, test=11, compressed=True):
  """Writes the four files; returns {split: Arrays}."""
  folder.mkdir(parents=True, exist_ok=True)
  splits = {'train': arrays(train, 1), 'test': arrays(test, 2)}
  for split, stem in (('train', 'train'), ('test', 't10k')):
    for values, name in (
      (splits[split].images, 'images-idx3'),
      (splits[split].labels, 'labels-idx1'),
    ):
      content = idx_bytes(values)
      path = folder / f'{stem}-{name}-ubyte'
      if compressed:
        path.with_name(f'{path.name}.gz').write_bytes(gzip.compress(content))
      else:
        path.write_bytes(content)
  return splits
