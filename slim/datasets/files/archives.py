"""Reads tar archives from the network without unpacking them to disk.

Nothing is written to a path that an archive names. Still, an archive with a
link, a device or a name that leads out of its folder is refused, because its
authors did not publish it so.
"""

import contextlib
import functools
import gzip
import io
import os
import pathlib
import re
import tarfile
import zlib
from collections import abc
from typing import NamedTuple

from slim import errors
from slim.datasets.records import disk

_refusal = functools.partial(
  errors.refusal,
  expected='a complete tar archive of regular files and folders',
  remedy='Download it again.',
)

_BLOCK_BYTES = 512
_COPY_BYTES = 1 << 20  # bytes
_DAMAGE = (
  tarfile.TarError,
  EOFError,
  OSError,
  zlib.error,
  ValueError,
  IndexError,
  OverflowError,
  RecursionError,
)
# A path is at most 4096 bytes long; some writers add a page of attributes.
_MAX_HEADER_BYTES = 1 << 16
_ATTRIBUTES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENSION_TYPES = (
  tarfile.GNUTYPE_LONGNAME,
  tarfile.GNUTYPE_LONGLINK,
  *_ATTRIBUTES,
)
_GZIP_MAGIC = b'\x1f\x8b'
_TYPE = slice(156, 157)  # position of the member type in a header block
# An attribute record: its length, which includes all of it, name and value.
_RECORD = re.compile(rb'([0-9]{1,5}) [^=\n]+=')
# tarfile's search in attributes takes quadratic time on a run of digits.
_DIGITS = re.compile(rb'[0-9]{256}')
# Bytes that an unpacked archive may have beyond twice the limit of its files.
_FRAMING_BYTES = 1 << 20


class _Header(tarfile.TarInfo):
  """Refuses headers that tarfile would read into memory before checks."""

  @classmethod
  def frombuf(
    cls, buf: bytes | bytearray, encoding: str, errors: str
  ) -> '_Header':
    header = super().frombuf(buf, encoding, errors)
    limit = _MAX_HEADER_BYTES if header.type in _EXTENSION_TYPES else None
    if header.size < 0 or (limit and header.size > limit):
      raise tarfile.ReadError(f'a header of {header.size} bytes')
    return header


class _Headers:
  """A file from which tarfile reads headers only, within a byte limit.

  The headers of a member (long names, attributes, maps of sparse files) may
  have `_MAX_HEADER_BYTES` in total, and so may the attributes of all members.
  tarfile takes quadratic time and memory for malformed attributes, so these
  are refused before it parses them.
  """

  def __init__(self, file: io.BufferedIOBase):
    """Starts at the current position of the file."""
    self.last_block = b''
    self.tell = file.tell
    self.seek = file.seek
    self._file = file
    self._kind = b''  # type of the header whose content is read next
    self._left = _MAX_HEADER_BYTES
    self._left_in_total = _MAX_HEADER_BYTES

  def begin_member(self) -> None:
    """Resets the limit for the headers of the next member."""
    self._left = _MAX_HEADER_BYTES

  def read(self, size: int) -> bytes:
    """Reads bytes of headers.

    Raises:
      tarfile.ReadError: the headers exceed the limit, or attributes are
        malformed.
    """
    self._left -= size
    content = self._file.read(size)
    kind, self._kind = self._kind, b''
    if kind in _ATTRIBUTES:
      _check_attributes(content)
    if kind == tarfile.XGLTYPE:
      self._left_in_total -= size
    if kind not in _EXTENSION_TYPES and size == _BLOCK_BYTES:
      self.last_block, self._kind = content, content[_TYPE]
    # Two more blocks: the header of the attributes and that of the member.
    if min(self._left + 2 * _BLOCK_BYTES, self._left_in_total) < 0:
      raise tarfile.ReadError(
        f'more than {_MAX_HEADER_BYTES} bytes of headers for one member'
      )
    return content


def _check_attributes(content: bytes) -> None:
  """Refuses records with a wrong length, and long runs of digits."""
  begin = 0
  while found := _RECORD.match(content, begin):
    end = begin + int(found[1])
    if end < found.end() + 1 or content[end - 1 : end] != b'\n':
      raise tarfile.ReadError(
        'attributes whose length differs from the declared one'
      )
    begin = end
  if content[begin : begin + 1].isdigit():
    raise tarfile.ReadError('malformed attributes')
  if _DIGITS.search(content):
    raise tarfile.ReadError('attributes with more than 255 digits in a row')


class Member(NamedTuple):
  """A file in an archive.

  Attributes:
    name: name of the member, with its folders.
    path: path of the file that contains it; for a plain file, its path.
    offset: offset of its first byte in that file.
    size: size in bytes.
    content: the content if it is in memory: gzip archives cannot be read at
      an offset.
  """

  name: str
  path: str
  offset: int
  size: int
  content: bytes | None = None

  def read(self) -> bytes:
    """Returns the content.

    Raises:
      OSError: the file cannot be read, or ends before `size`.
    """
    if self.content is not None:
      return self.content
    with open(self.path, 'rb') as file:
      file.seek(self.offset)
      content = file.read(self.size)
    if len(content) != self.size:
      raise OSError(
        f'{self.path}: read {len(content)} of {self.size} bytes at offset '
        f'{self.offset}'
      )
    return content


def check_hash(path: pathlib.Path, algorithm: str, expected: str) -> None:
  """Refuses a file whose hash differs.

  Args:
    path: path of the file.
    algorithm: 'sha256', or 'md5' if the authors publish nothing better.
    expected: the hash, in hexadecimal digits.

  Raises:
    slim.errors.DataError: the hash differs. The message shows both.
    OSError: the file cannot be read.
  """
  received = disk.digest(path, algorithm)
  if received != expected:
    raise errors.DataError(
      f'{path}: expected {algorithm} {expected}; received '
      f'{received}. Download it again, or, for the file of a mirror '
      'that you trust, give --noverify_checksums.'
    )


def index(path: os.PathLike[str] | str) -> list[Member]:
  """Lists all files of an uncompressed tar, for reads in any order.

  Returns:
    A member for each file, in the order of the tar.

  Raises:
    slim.errors.DataError: the file is not an uncompressed tar, is cut short,
      or has a member that is refused.
  """
  with refusing_damage(path), open(path, 'rb') as file:
    return _index(os.fspath(path), file)


def index_inner(member: Member) -> list[Member]:
  """Lists all files of an uncompressed tar that is a member of a tar.

  Args:
    member: the inner tar.

  Returns:
    A member for each file; offsets are in the outermost file.

  Raises:
    slim.errors.DataError: as `index`, or a file lies beyond the inner tar.
  """
  end = member.offset + member.size
  with refusing_damage(f'{member.path}, {member.name}'):
    with open(member.path, 'rb') as file:
      file.seek(member.offset)
      found = _index(f'{member.path}, {member.name}', file, end)
  for inner in found:
    if inner.offset + inner.size > end:
      raise _refusal(
        f'{member.path}, {member.name}',
        received=f'a member that ends beyond the archive, {inner.name!r}',
      )
  return [inner._replace(path=member.path) for inner in found]


def files(
  path: os.PathLike[str] | str,
  limit: int,
  is_wanted: abc.Callable[[str], bool],
) -> abc.Iterator[tuple[str, bytes]]:
  """Reads files of a tar, compressed with gzip or not, in one pass.

  Args:
    path: path of the tar.
    limit: maximum unpacked size of all files of the archive, in bytes.
    is_wanted: takes a file's name; returns whether to read the file.

  Yields:
    Name and content of each wanted file.

  Raises:
    slim.errors.DataError: as `index`, or the archive exceeds the limit.
  """
  total = 0
  max_read = 2 * limit + _FRAMING_BYTES
  with refusing_damage(path), open(path, 'rb') as file:
    source = gzip.open(file) if file.peek(2)[:2] == _GZIP_MAGIC else file
    for info in _infos(path, source):
      total += info.size
      if total > limit or source.tell() > max_read:
        raise _refusal(path, received=f'more than {limit} bytes when unpacked')
      if info.isfile() and is_wanted(info.name):
        source.seek(info.offset_data)
        content = source.read(info.size)
        if len(content) < info.size:
          raise _refusal(path, received=f'a truncated member, {info.name!r}')
        yield info.name, content
    # gzip verifies its checksum at its end of file, after the end of the tar.
    while rest := source.read(_COPY_BYTES):
      _check_rest(path, rest)
      if source.tell() > max_read + _COPY_BYTES:
        raise _refusal(path, received=f'more than {limit} bytes when unpacked')


@contextlib.contextmanager
def refusing_damage(path: os.PathLike[str] | str) -> abc.Iterator[None]:
  """Converts errors from reading a damaged archive into a DataError."""
  try:
    yield
  except errors.DataError:
    raise
  except _DAMAGE as error:
    raise _refusal(path, received=f'"{error}"') from error


def _index(
  path: str, file: io.BufferedIOBase, end: int | None = None
) -> list[Member]:
  """Lists the files of the tar that begins at the file's position.

  Args:
    path: path of the tar, for messages.
    file: holds the tar.
    end: where the tar ends in the file; None: where the file does.
  """
  members = [
    Member(info.name, path, info.offset_data, info.size)
    for info in _infos(path, file)
    if info.isfile()
  ]
  while rest := file.read(
    _COPY_BYTES if end is None else min(_COPY_BYTES, max(0, end - file.tell()))
  ):
    _check_rest(path, rest)
  return members


def _check_rest(path: os.PathLike[str] | str, rest: bytes) -> None:
  """Refuses data after the end: tarfile takes a header of zeros for it."""
  if rest.strip(b'\0'):
    raise _refusal(path, received='data after the end marker')


def _infos(
  path: os.PathLike[str] | str, file: io.BufferedIOBase
) -> abc.Iterator[tarfile.TarInfo]:
  """Yields checked headers of a tar's files and folders, then checks its end.

  Args:
    path: path of the tar, for messages.
    file: an open file at the start of the tar. It is read forward only.
  """
  headers = _Headers(file)
  count = 0
  # 'r:' refuses compression, in which offsets would be meaningless. typeshed
  # requires a writable file even for reading.
  with tarfile.open(fileobj=headers, mode='r:', tarinfo=_Header) as tar:  # type: ignore[call-overload]
    for info in tar:
      _check(path, info)
      # The list of tarfile's members can take more memory than the archive.
      tar.members.clear()
      headers.begin_member()
      count += 1
      yield info
  # A tar ends with blocks of zeros. tarfile accepts a tar without them, and
  # treats a damaged header as the end.
  if headers.last_block != bytes(_BLOCK_BYTES):
    raise _refusal(path, received=f'no end marker after {count} members')


def _check(path: os.PathLike[str] | str, info: tarfile.TarInfo) -> None:
  if info.size < 0:
    raise _refusal(path, received=f'{info.name!r}, {info.size} bytes long')
  parts = pathlib.PurePosixPath(info.name).parts
  if info.name.startswith('/') or '..' in parts or '\\' in info.name:
    raise _refusal(
      path, received=f"a path outside the archive's folder, {info.name!r}"
    )
  if info.issym() or info.islnk():
    raise _refusal(path, received=f'a link, {info.name!r} to {info.linkname!r}')
  if info.issparse() or not (info.isfile() or info.isdir()):
    raise _refusal(path, received=f'a special file, {info.name!r}')
