"""Counts the records of TFRecord files and detects damage.

A record is a little-endian uint64 payload length, the masked CRC-32C of those
eight bytes, the payload, and the masked CRC-32C of the payload. `scan` reads
only the lengths, so it is fast enough to run before every start; `verify`
reads everything.
"""

import concurrent.futures
import dataclasses
import functools
import os
import pathlib
import struct
from collections import abc
from typing import BinaryIO

import tensorflow as tf

from slim import errors

_HEADER = struct.Struct('<QI')  # payload length, masked CRC of the length
_FOOTER_BYTES = 4  # masked CRC of the payload
_CRC32C_POLYNOMIAL = 0x82F63B78  # reflected Castagnoli polynomial
_CRC_MASK_DELTA = 0xA282EAD8
# Two reads of this size fetch a header and skip a large payload. A larger
# buffer would read image data that the scan does not need.
_SCAN_BUFFER_BYTES = 8192
_SCAN_THREADS = 16
_MAX_MESSAGE = 1000  # characters of a message

PathLike = str | os.PathLike[str]

# Errors raised while iterating over records. TensorFlow's messages repeat the
# bytes that it could not parse; if these are not UTF-8, decoding the message
# fails.
FAILURES = (tf.errors.OpError, UnicodeDecodeError)


@dataclasses.dataclass(frozen=True)
class RecordFile:
  """A file with valid framing, or a range of its records.

  Attributes:
    path: path of the file.
    count: number of records to read.
    first: index of the first record to read, from 0.
  """

  path: str
  count: int
  first: int = 0


def find(data_dir: PathLike, split: str) -> list[str]:
  """Lists the files `<data_dir>/<split>-*`, sorted by name.

  Args:
    data_dir: the folder.
    split: 'train', 'test', 'validation'.

  Returns:
    Sorted paths; empty if nothing matches or the folder does not exist.
    Includes broken symbolic links, so that reading reports them.
  """
  folder = pathlib.Path(data_dir)
  if not folder.is_dir():
    return []
  return sorted(
    str(path)
    for path in folder.iterdir()
    if path.name.startswith(f'{split}-')
    and (path.is_file() or (path.is_symlink() and not path.exists()))
  )


def scan_all(paths: abc.Sequence[PathLike]) -> tuple[RecordFile, ...]:
  """Scans the framing of several files in parallel, as `scan` does.

  Returns:
    A RecordFile for each path, in the same order.

  Raises:
    slim.errors.DataError: a file is damaged; reports the first one.
  """
  with concurrent.futures.ThreadPoolExecutor(_SCAN_THREADS) as pool:
    return tuple(
      pool.map(lambda path: RecordFile(os.fspath(path), scan(path)), paths)
    )


def scan(path: PathLike) -> int:
  """Counts the records of a file by their lengths, without the payloads.

  Detects a file that was cut within a record, and damaged lengths. It cannot
  detect a cut between two records, which leaves a valid, shorter file, or a
  damaged payload; `verify` checks payloads.

  Args:
    path: a TFRecord file without compression.

  Returns:
    The number of records, >= 1.

  Raises:
    slim.errors.DataError: the file is damaged, empty or unreadable. The
      message names the file and the record, counted from 0.
  """
  try:
    with open(path, 'rb', buffering=_SCAN_BUFFER_BYTES) as file:
      return _scan_stream(path, file)
  except OSError as error:
    raise errors.DataError(
      f'{path}: expected a readable TFRecord file; received "{error}". Check '
      'the path and its permissions.'
    ) from error


def verify(path: PathLike) -> int:
  """Reads a whole file, checks every payload, and counts the records.

  Args:
    path: a TFRecord file without compression.

  Returns:
    The number of records, >= 1.

  Raises:
    slim.errors.DataError: the file is damaged, empty or unreadable, or a
      payload does not match its CRC.
  """
  expected = scan(path)
  number = 0
  try:
    for _ in tf.data.TFRecordDataset(os.fspath(path)):
      number += 1
  except tf.errors.DataLossError as error:
    raise _damaged(
      path, number, 'a payload that matches its CRC', 'one that does not'
    ) from error
  if number != expected:
    raise _damaged(path, number, f'{expected} records', f'{number}')
  return number


def explain(
  error: Exception, paths: abc.Sequence[PathLike]
) -> errors.DataError:
  """Converts an error from reading records into one with a remedy.

  Reads all the files to find the damaged record. Call it after a failure.

  Args:
    error: the error raised by iterating over the records, one of `FAILURES`,
      such as tf.errors.DataLossError.
    paths: the files that were being read. Empty for other sources, whose
      messages already name the location.

  Returns:
    The error to raise from `error`. Names the file and the record if a file
    is damaged; otherwise repeats the message of `error`.
  """
  for path in paths:
    try:
      verify(path)
    except errors.DataError as found:
      return found
  message = message_of(error)
  if not paths:
    return errors.DataError(
      'Reading the data: expected examples of this data set; received '
      f'"{message}". Repair or remove the damaged files.'
    )
  return errors.DataError(
    f'Reading {", ".join(map(str, paths))}: expected examples of this data '
    f'set; every record is intact, but reading failed with "{message}". Check '
    'that the folder belongs to this data set, or convert the data set again '
    'with --overwrite.'
  )


def message_of(error: Exception) -> str:
  """Returns at most 1000 characters of the message of one of `FAILURES`."""
  if isinstance(error, UnicodeDecodeError):
    message = error.object.decode('utf-8', 'replace')
  else:
    message = getattr(error, 'message', None) or str(error)
  return message[:_MAX_MESSAGE]


def _scan_stream(path: PathLike, file: BinaryIO) -> int:
  """Counts the records of an open file, from its start."""
  size = os.fstat(file.fileno()).st_size
  if not size:
    raise _damaged(path, 0, 'at least one record', 'an empty file')
  position = number = 0
  while position < size:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
      raise _damaged(
        path, number, f'a header of {_HEADER.size} bytes', f'{len(header)}'
      )
    length, crc = _HEADER.unpack(header)
    if crc != _masked_crc32c(header[:8]):
      raise _damaged(
        path, number, 'a length that matches its CRC', 'one that does not'
      )
    end = position + _HEADER.size + length + _FOOTER_BYTES
    if end > size:
      raise _damaged(
        path,
        number,
        f'{end - position} bytes',
        f'{size - position}: the file was cut short',
      )
    file.seek(end)
    position = end
    number += 1
  return number


def _damaged(
  path: PathLike, number: int, expected: str, received: str
) -> errors.DataError:
  remedy = 'Convert the data set again.'
  if not number:
    remedy += ' If this is not a TFRecord file, move it to another folder.'
  return errors.DataError(
    f'{path}: record {number} (counted from 0) is damaged: expected '
    f'{expected}; received {received}. {remedy}'
  )


def _crc32c_table() -> tuple[int, ...]:
  table = []
  for value in range(256):
    for _ in range(8):
      value = (value >> 1) ^ (_CRC32C_POLYNOMIAL if value & 1 else 0)
    table.append(value)
  return tuple(table)


_CRC32C_TABLE = _crc32c_table()


# Lengths repeat: the 60,000 of MNIST's training set have a few hundred values.
@functools.lru_cache(maxsize=65536)
def _masked_crc32c(data: bytes) -> int:
  """Computes CRC-32C of `data`, rotated and shifted as TFRecord stores it."""
  crc = 0xFFFFFFFF
  for byte in data:
    crc = _CRC32C_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
  crc ^= 0xFFFFFFFF
  rotated = (crc >> 15) | (crc << 17) & 0xFFFFFFFF
  return (rotated + _CRC_MASK_DELTA) & 0xFFFFFFFF
