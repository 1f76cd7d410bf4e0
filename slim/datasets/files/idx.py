"""Reads idx files, the format of MNIST and its variants.

An idx file is a magic number (two zero bytes, 8 for unsigned bytes, the number
of dimensions), each dimension as a big-endian uint32, and the bytes. Files come
from the network, so everything in them is validated.
"""

import functools
import gzip
import hashlib
import pathlib
import struct
import zlib
from typing import NamedTuple

import numpy as np

from slim import errors

_refusal = functools.partial(errors.refusal, remedy='Download the file again.')

# The largest published variant (EMNIST by class) has 814,255 items.
MAX_ITEMS = 1_000_000

_GZIP_MAGIC = b'\x1f\x8b'
_UNSIGNED_BYTE = 8


class IdxFile(NamedTuple):
  """Content of an idx file.

  Attributes:
    values: uint8 [N] + item_shape.
    sha256: digest of the uncompressed file, in lower-case hexadecimal digits.
  """

  values: np.ndarray
  sha256: str


def read(path: pathlib.Path, item_shape: tuple[int, ...]) -> IdxFile:
  """Reads an idx file of unsigned bytes, gzip-compressed or not.

  Args:
    path: path of the file.
    item_shape: expected shape after the first dimension: (28, 28) for MNIST's
      images, () for its labels.

  Returns:
    The values and the digest. Memory is limited to that of MAX_ITEMS items,
    whatever the header announces.

  Raises:
    slim.errors.DataError: the file is unreadable, is not an idx file, or has
      another shape, more than MAX_ITEMS items, or fewer or more bytes than
      the header announces.
  """
  try:
    with open(path, 'rb') as file:
      compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    with gzip.open(path, 'rb') if compressed else open(path, 'rb') as file:
      header = file.read(4 * (2 + len(item_shape)))
      count = _check_header(path, header, item_shape)
      expected = count * int(np.prod(item_shape, dtype=np.int64))
      content = file.read(expected + 1)  # one more byte, to detect excess
  except (OSError, EOFError, zlib.error) as error:
    raise _refusal(path, 'a whole, readable file', f'"{error}"') from error
  if len(content) != expected:
    received = 'more' if len(content) > expected else f'{len(content)}'
    raise _refusal(path, f'{expected} bytes after the header', received)
  digest = hashlib.sha256(header)
  digest.update(content)
  values = np.frombuffer(content, np.uint8).reshape(count, *item_shape)
  return IdxFile(values, digest.hexdigest())


def _check_header(
  path: pathlib.Path, header: bytes, item_shape: tuple[int, ...]
) -> int:
  """Checks the header and returns the number of items it announces."""
  dimensions = 1 + len(item_shape)
  if len(header) != 4 * (1 + dimensions):
    raise _refusal(
      path, f'a header of {4 * (1 + dimensions)} bytes', f'{len(header)}'
    )
  magic, count, *shape = struct.unpack(f'>{1 + dimensions}I', header)
  expected_magic = _UNSIGNED_BYTE << 8 | dimensions
  if magic != expected_magic:
    raise _refusal(
      path, f'the magic number 0x{expected_magic:08x}', f'0x{magic:08x}'
    )
  if tuple(shape) != item_shape:
    raise _refusal(path, f'items of shape {item_shape}', f'{tuple(shape)}')
  if not 1 <= count <= MAX_ITEMS:
    raise _refusal(path, f'1 to {MAX_ITEMS} items', f'{count}')
  return count
