"""Reads tar archives from the network without unpacking them.

Nothing is ever written to a path that an archive names. Even so an archive with
a link, a device or a name that leads out of a folder is refused: it is not what
its authors published.
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
  expected='a whole tar archive of plain files and folders, with its end',
  remedy='Download it again.',
)

_BLOCK_BYTES = 512
_COPY_TOGETHER = 1 << 20  # bytes
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
# A path's longest name is 4096 bytes; some writers add a page of attributes.
_MOST_HEADER_BYTES = 1 << 16
_ATTRIBUTES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_WITH_MORE_HEADER = (
  tarfile.GNUTYPE_LONGNAME,
  tarfile.GNUTYPE_LONGLINK,
  *_ATTRIBUTES,
)
_GZIP_MAGIC = b'\x1f\x8b'
_TYPE = slice(156, 157)  # of a header, its place in the block
# A record of attributes: its length, which counts all of it, name and value.
_RECORD = re.compile(rb'([0-9]{1,5}) [^=\n]+=')
# tarfile's search in attributes takes the square of a run of digits.
_DIGITS = re.compile(rb'[0-9]{256}')
# What a compressed archive may have besides its files and as much of headers.
_FRAMING_BYTES = 1 << 20


class _Header(tarfile.TarInfo):
  """Refuses what tarfile would read into the memory before one can look."""

  @classmethod
  def frombuf(
    cls, buf: bytes | bytearray, encoding: str, errors: str
  ) -> '_Header':
    header = super().frombuf(buf, encoding, errors)
    limit = _MOST_HEADER_BYTES if header.type in _WITH_MORE_HEADER else None
    if header.size < 0 or (limit and header.size > limit):
      raise tarfile.ReadError(f'a header of {header.size} bytes')
    return header


class _Headers:
  """A file of which tarfile reads headers only, and not many bytes of them.

  A member's headers (long names, attributes, maps of sparse files) have
  `_MOST_HEADER_BYTES` together, and so have the attributes of all members.
  tarfile keeps and searches attributes in ways that take the square of their
  size where they are malformed: such are refused before it sees them.
  """

  def __init__(self, file: io.BufferedIOBase):
    """Reads from where the file is."""
    self.last_block = b''
    self.tell = file.tell
    self.seek = file.seek
    self._file = file
    self._kind = b''  # of the header whose content is to be read next
    self._left = _MOST_HEADER_BYTES
    self._left_for_all = _MOST_HEADER_BYTES

  def begin_member(self) -> None:
    """Allows the next member its headers."""
    self._left = _MOST_HEADER_BYTES

  def read(self, size: int) -> bytes:
    """Reads bytes of headers.

    Raises:
      tarfile.ReadError: they are too many, or malformed attributes.
    """
    self._left -= size
    content = self._file.read(size)
    kind, self._kind = self._kind, b''
    if kind in _ATTRIBUTES:
      _check_attributes(content)
    if kind == tarfile.XGLTYPE:
      self._left_for_all -= size
    if kind not in _WITH_MORE_HEADER and size == _BLOCK_BYTES:
      self.last_block, self._kind = content, content[_TYPE]
    # Two blocks more: the header of the attributes and that of the member.
    if min(self._left + 2 * _BLOCK_BYTES, self._left_for_all) < 0:
      raise tarfile.ReadError(
        f'more than {_MOST_HEADER_BYTES} bytes of headers of a member'
      )
    return content


def _check_attributes(content: bytes) -> None:
  """Refuses records of another length than they say, and runs of digits."""
  begin = 0
  while found := _RECORD.match(content, begin):
    end = begin + int(found[1])
    if end < found.end() + 1 or content[end - 1 : end] != b'\n':
      raise tarfile.ReadError('attributes of another length than they say')
    begin = end
  if content[begin : begin + 1].isdigit():
    raise tarfile.ReadError('attributes of another form')
  if _DIGITS.search(content):
    raise tarfile.ReadError('attributes with more than 255 digits in a row')


class Member(NamedTuple):
  """A file within a file.

  Attributes:
    name: of the member, with its folders.
    path: of the file that holds it; a plain file holds itself.
    offset: of its first byte there.
    size: in bytes.
    content: where it is in memory: a compressed archive has no places.
  """

  name: str
  path: str
  offset: int
  size: int
  content: bytes | None = None

  def read(self) -> bytes:
    """Returns the content.

    Raises:
      OSError: it cannot be read, or ends before `size`.
    """
    if self.content is not None:
      return self.content
    with open(self.path, 'rb') as file:
      file.seek(self.offset)
      content = file.read(self.size)
    if len(content) != self.size:
      raise OSError(
        f'{self.path}: {len(content)} of {self.size} bytes at {self.offset}'
      )
    return content


def check_hash(path: pathlib.Path, algorithm: str, expected: str) -> None:
  """Refuses a file with another hash.

  Args:
    path: of the file.
    algorithm: 'sha256', or 'md5' where authors publish nothing better.
    expected: the hash, in hexadecimal digits.

  Raises:
    slim.errors.DataError: the hash is another; says both.
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
  """Finds all files of a plain tar, to be read from it in any order.

  Args:
    path: of a tar that is not compressed.

  Returns:
    A member for each file, in the order of the tar.

  Raises:
    slim.errors.DataError: not a plain tar, cut short, or with a member that is
      refused.
  """
  with refusing_damage(path), open(path, 'rb') as file:
    return _index(os.fspath(path), file)


def index_within(member: Member) -> list[Member]:
  """Finds all files of a plain tar that is itself a member of a tar.

  Args:
    member: the tar.

  Returns:
    As `index`; offsets are in the outermost file.

  Raises:
    slim.errors.DataError: as `index`.
  """
  with refusing_damage(f'{member.path}, {member.name}'):
    with open(member.path, 'rb') as file:
      file.seek(member.offset)
      found = _index(f'{member.path}, {member.name}', file)
  end = member.offset + member.size
  for inner in found:
    if inner.offset + inner.size > end:
      raise _refusal(
        f'{member.path}, {member.name}',
        received=f'{inner.name} beyond its end',
      )
  return [inner._replace(path=member.path) for inner in found]


def files(
  path: os.PathLike[str] | str,
  limit: int,
  is_wanted: abc.Callable[[str], bool],
) -> abc.Iterator[tuple[str, bytes]]:
  """Reads files of a tar, compressed with gzip or not, in one pass.

  Args:
    path: of the tar.
    limit: bytes that the files of the whole archive may have, unpacked.
    is_wanted: says by its name whether a file is read.

  Yields:
    Name and content of each wanted file.

  Raises:
    slim.errors.DataError: as `index`, or larger than the limit.
  """
  total = 0
  most = 2 * limit + _FRAMING_BYTES
  with refusing_damage(path), open(path, 'rb') as file:
    source = gzip.open(file) if file.peek(2)[:2] == _GZIP_MAGIC else file
    for info in _infos(path, source):
      total += info.size
      if total > limit or source.tell() > most:
        raise _refusal(path, received=f'more than {limit} bytes when unpacked')
      if info.isfile() and is_wanted(info.name):
        source.seek(info.offset_data)
        content = source.read(info.size)
        if len(content) < info.size:
          raise _refusal(path, received=f'{info.name!r} without its end')
        yield info.name, content
    # gzip checks its checksum at its end, which is behind that of the tar.
    while source.read(_COPY_TOGETHER):
      if source.tell() > most + _COPY_TOGETHER:
        raise _refusal(path, received=f'more than {limit} bytes when unpacked')


@contextlib.contextmanager
def refusing_damage(path: os.PathLike[str] | str) -> abc.Iterator[None]:
  """Turns what reading a damaged archive raises into a DataError."""
  try:
    yield
  except errors.DataError:
    raise
  except _DAMAGE as error:
    raise _refusal(path, received=f'"{error}"') from error


def _index(path: str, file: io.BufferedIOBase) -> list[Member]:
  """Lists the files of the tar that begins where the open file is."""
  return [
    Member(info.name, path, info.offset_data, info.size)
    for info in _infos(path, file)
    if info.isfile()
  ]


def _infos(
  path: os.PathLike[str] | str, file: io.BufferedIOBase
) -> abc.Iterator[tarfile.TarInfo]:
  """What a tar says of its files and folders, checked, and then its end.

  Args:
    path: of the tar, for messages.
    file: the tar, which begins where the file is. It is read forward only.
  """
  headers = _Headers(file)
  count = 0
  # 'r:' refuses compression, in which offsets would mean nothing.
  # typeshed wants files to read from to be writable, too.
  with tarfile.open(fileobj=headers, mode='r:', tarinfo=_Header) as tar:  # type: ignore[call-overload]
    for info in tar:
      _check(path, info)
      # What tarfile keeps of them can be larger than the archive.
      tar.members.clear()
      headers.begin_member()
      count += 1
      yield info
  # A tar ends with blocks of zeros. tarfile is content without them, and
  # stops at a damaged header as if it were the end.
  if headers.last_block != bytes(_BLOCK_BYTES):
    raise _refusal(path, received=f'none after {count} members')


def _check(path: os.PathLike[str] | str, info: tarfile.TarInfo) -> None:
  if info.size < 0:
    raise _refusal(path, received=f'{info.name!r} of {info.size} bytes')
  parts = pathlib.PurePosixPath(info.name).parts
  if info.name.startswith('/') or '..' in parts or '\\' in info.name:
    raise _refusal(path, received=f'a name that leads elsewhere, {info.name!r}')
  if info.issym() or info.islnk():
    raise _refusal(path, received=f'a link, {info.name!r} to {info.linkname!r}')
  if info.issparse() or not (info.isfile() or info.isdir()):
    raise _refusal(path, received=f'a special file, {info.name!r}')
