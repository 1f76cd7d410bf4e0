"""Pickles and idx files of small images."""

import gzip
import pickle
import struct

import numpy as np

from slim import errors
from slim.datasets.files import idx as idx_files
from slim.datasets.files import pickles
from slim.datasets.small_images import arrays
from slim.datasets.small_images import cifar10_source
from tests.fuzzing import mutation
from tests.fuzzing.target import Target
from tests.slim import archives_made
from tests.slim import mnist_files

_REFUSED = (errors.DataError,)


def _batch(protocol, **changes):
  value = {
    b'batch_label': b'training batch 1 of 5',
    b'labels': [3, 7],
    b'data': np.arange(2 * 3072, dtype=np.int64)
    .astype(np.uint8)
    .reshape(2, -1),
    b'filenames': [b'a.png', b'b.png'],
    **changes,
  }
  return pickle.dumps(value, protocol)


_PICKLE_WORDS = (
  *(b'cos\nsystem\n', b'cnumpy\nndarray\n', b'cnumpy\ndtype\n', b'}', b']'),
  *(b'K\x05', b'\x8c\x04data', b'U\x06labels', b'q\x00', b'h\x00', b'\x94'),
  *(b'(', b't', b'\x85', b'R', b'b', b'.', b'\x81', b'G', b'J\xff\xff\xff\xff'),
  *(b'\x8a\x08', b'r\xff\xff\xff\x0f', b'C\x04abcd', b's', b'u', b'a', b'e'),
)


def pickled():
  """A pickle of a batch of CIFAR."""

  def parse(content, folder):
    del folder
    pickles.load(content, 'batch')

  seeds = [_batch(protocol) for protocol in (1, 2, 3, 4)]
  seeds += [pickle.dumps([1.5, None, True, 'x', 2**70], 2)]
  return Target(
    parse,
    seeds,
    _REFUSED,
    ['slim.datasets.files.pickles'],
    _PICKLE_WORDS,
    # What reads it may take a dict of 2**20 operations.
    mebibytes=128,
  )


def cifar_python():
  """An archive of CIFAR-10, of whose batches one is made up."""

  def parse(content, folder):
    whole = archives_made.cifar_python(made, data_batch_2=content)
    (folder / cifar10_source.PYTHON).write_bytes(whole)
    cifar10_source.from_python(
      arrays.SourceOptions(source_dir=str(folder), verify_checksums=False)
    )

  made = archives_made.cifar(2)
  return pickled()._replace(
    parse=parse,
    seeds=[_batch(protocol) for protocol in (1, 2, 3, 4)],
    modules=[
      'slim.datasets.files.pickles',
      'slim.datasets.small_images.cifar10_source',
      'slim.datasets.small_images.arrays',
    ],
  )


def idx():
  """Images and labels as idx files."""

  def parse(content, folder):
    path = folder / 'a-ubyte'
    path.write_bytes(content)
    shape = () if content[3:4] == b'\1' else (28, 28)
    idx_files.read(path, shape)

  made = mnist_files.arrays(3, 1)
  return Target(
    parse,
    [mnist_files.idx_bytes(made.images), mnist_files.idx_bytes(made.labels)],
    _REFUSED,
    ['slim.datasets.files.idx'],
    (struct.pack('>I', 0x803), struct.pack('>I', 28), struct.pack('>I', 10**6)),
  )


def idx_gzip():
  """Compressed idx files."""
  plain = idx()

  def parse(content, folder):
    path = folder / 'a-ubyte.gz'
    path.write_bytes(content)
    idx_files.read(path, (28, 28))

  def repair(random, content):
    del content
    return gzip.compress(
      mutation.mutated(random, plain.seeds[0], plain.seeds, plain.words), 1
    )

  return plain._replace(
    parse=parse, seeds=[gzip.compress(plain.seeds[0])], repair=repair
  )
