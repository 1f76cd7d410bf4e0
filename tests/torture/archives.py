"""Hostile files to readers: `python -m tests.torture.archives SEED COUNT`.

Tars, pickles and idx files whose outer layers are right and whose inner ones
lie. Readers must read or refuse them, in little time and memory, and neither
run nor write anything. Works in the present folder.
"""

import gzip
import pathlib
import pickle
import shutil
import struct
import sys

import numpy as np

from slim import errors
from slim.datasets.files import archives
from slim.datasets.small_images import arrays
from slim.datasets.small_images import cifar10_source
from slim.datasets.small_images import mnist_source
from tests import bounded
from tests.slim import archives_made
from tests.slim import mnist_files
from tests.torture import faults

_MEMORY, _SECONDS = 400 << 20, 20
_FOLDER, _EVIL = pathlib.Path('given'), pathlib.Path('evil')
# Of a header of tar: where a field begins, and its bytes.
_FIELDS = (
  *((0, 100), (100, 8), (108, 8), (116, 8), (124, 12), (136, 12)),
  *((156, 1), (157, 100), (257, 8), (329, 8), (337, 8), (345, 155)),
)
_CHECKSUM = slice(148, 156)
_NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 10**6 + 1)


class Call:
  """Pickles as a call that leaves a file."""

  def __reduce__(self):
    return open, (str(_EVIL), 'w')


def lie(rng, content):
  """A tar in which one field of one header is another."""
  content = bytearray(content)
  magic = range(257, len(content), 512)
  headers = [at - 257 for at in magic if content[at : at + 5] == b'ustar']
  header = headers[rng.integers(len(headers))]
  start, size = _FIELDS[rng.integers(len(_FIELDS))]
  value = (
    rng.bytes(size),
    rng.choice(list(b'01234567LKxgSXDMVN'), size).astype(np.uint8).tobytes(),
    # Numbers of base 256: huge ones, and below zero.
    (b'\x80' + rng.bytes(size))[:size],
    (b'\xff' + rng.bytes(size))[:size],
    b'../../evil'[:size],
    b'/etc/passwd'[:size],
    b'7' * size,
  )[rng.integers(7)]
  content[header + start : header + start + len(value)] = value
  block = content[header : header + 512]
  block[_CHECKSUM] = b' ' * 8
  block[_CHECKSUM] = b'%06o\0 ' % sum(block)
  content[header : header + 512] = block
  return bytes(content)


def hostile_pickle(rng, content):
  """Another pickle: damaged, or one that calls."""
  if rng.random() < 0.2:
    return pickle.dumps({b'data': Call(), b'labels': []}, rng.integers(6))
  path = pathlib.Path('pickle')
  path.write_bytes(content)
  faults.damage(path, rng)
  return path.read_bytes() if path.exists() else b''


def read_tar(rng):
  """A tar within a tar that lie, by their members."""
  inner = archives_made.tar(
    [archives_made.member(f'x/{i}', bytes(700 * i)) for i in range(4)]
  )
  path = _FOLDER / 'a.tar'
  members = archives_made.member('inner.tar', lie(rng, inner))
  content = archives_made.tar([archives_made.member('one', b'1'), members])
  path.write_bytes(lie(rng, content) if rng.random() < 0.5 else content)
  list(archives.files(path, 1 << 20, lambda name: True))
  for member in archives.index(path):
    member.read()
    if member.name == 'inner.tar':
      for within in archives.index_inner(member):
        within.read()


def read_cifar(rng):
  """An archive of CIFAR-10 that lies, or with a hostile pickle in it."""
  batches = archives_made.cifar()
  if rng.random() < 0.3:
    name = cifar10_source.BINARY
    content = lie(rng, gzip.decompress(archives_made.cifar_binary(batches)))
  else:
    name = cifar10_source.PYTHON
    images, labels = batches['data_batch_2']
    pixels = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    batch = {b'data': pixels, b'labels': labels.tolist()}
    whole = pickle.dumps(batch, int(rng.integers(6)))
    content = gzip.decompress(
      archives_made.cifar_python(
        batches, data_batch_2=hostile_pickle(rng, whole)
      )
    )
  (_FOLDER / name).write_bytes(gzip.compress(content, 1))
  cifar10_source.from_best(
    arrays.SourceOptions(str(_FOLDER), verify_checksums=False)
  )


def read_idx(rng):
  """A file of MNIST whose header says something else."""
  mnist_files.write_idx(_FOLDER)
  paths = sorted(_FOLDER.iterdir())
  path = paths[rng.integers(len(paths))]
  content = bytearray(gzip.decompress(path.read_bytes()))
  place = 4 * int(rng.integers(4 if 'images' in path.name else 2))
  number = _NUMBERS[rng.integers(len(_NUMBERS))]
  if rng.random() < 0.5:
    number = int(rng.integers(2**32))
  content[place : place + 4] = struct.pack('>I', number)
  # What is announced may even be there, as far as it goes.
  content += bytes(int(rng.integers(2)) * (20 << 20))
  path.write_bytes(gzip.compress(bytes(content), 1))
  mnist_source.from_idx(
    mnist_source.SourceOptions(str(_FOLDER), verify_checksums=False)
  )


def try_one(rng):
  """Gives one file to its reader; what that does besides is an error."""
  shutil.rmtree(_FOLDER, ignore_errors=True)
  _FOLDER.mkdir()
  read = (read_tar, read_cifar, read_idx)[rng.integers(3)]
  try:
    with bounded.memory(_MEMORY), bounded.seconds(_SECONDS):
      read(rng)
  except errors.DataError as error:
    assert 'expected' in str(error).lower(), error
    assert '\n' not in str(error), error
  assert not _EVIL.exists()


def main():
  seed, count = map(int, sys.argv[1:])
  for number in range(count):
    try:
      try_one(np.random.default_rng([seed, number]))
    except BaseException:
      sys.stderr.write(f'file {number} of seed {seed}:\n')
      raise


if __name__ == '__main__':
  main()
