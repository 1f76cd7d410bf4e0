"""Reads tar archives from the network without unpacking them.

Nothing is ever written to a path that an archive names. Even so an archive with
a link, a device or a name that leads out of a folder is refused: it is not what
its authors published.
"""

import contextlib
import gzip
import hashlib
import os
import pathlib
import tarfile
import zlib
from collections import abc
from typing import BinaryIO
from typing import NamedTuple

from slim import errors

_BLOCK_BYTES = 512
_COPY_TOGETHER = 1 << 20  # bytes
_DAMAGE = (
  tarfile.TarError,
  EOFError,
  OSError,
  zlib.error,
  ValueError,
  OverflowError,
  RecursionError,
)
# A path's longest name is 4096 bytes; some writers add a page of attributes.
_MOST_HEADER_BYTES = 1 << 16
_WITH_MORE_HEADER = (
  tarfile.GNUTYPE_LONGNAME,
  tarfile.GNUTYPE_LONGLINK,
  tarfile.XHDTYPE,
  tarfile.XGLTYPE,
  tarfile.SOLARIS_XHDTYPE,
)


class _Header(tarfile.TarInfo):
  """Refuses what tarfile would read into the memory before one can look."""

  @classmethod
  def frombuf(cls, buf: bytes, encoding: str, errors: str) -> '_Header':
    header = super().frombuf(buf, encoding, errors)
    limit = _MOST_HEADER_BYTES if header.type in _WITH_MORE_HEADER else None
    if header.size < 0 or (limit and header.size > limit):
      raise tarfile.ReadError(f'a header of {header.size} bytes')
    return header


class Member(NamedTuple):
  """A file within a file.

  Attributes:
    name: of the member, with its folders.
    path: of the file that holds it; a plain file holds itself.
    offset: of its first byte there.
    size: in bytes.
  """

  name: str
  path: str
  offset: int
  size: int

  def read(self) -> bytes:
    """Returns the content.

    Raises:
      OSError: it cannot be read, or ends before `size`.
    """
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
  digest = hashlib.new(algorithm, usedforsecurity=False)
  with open(path, 'rb') as file:
    while piece := file.read(_COPY_TOGETHER):
      digest.update(piece)
  if digest.hexdigest() != expected:
    raise errors.DataError(
      f'{path}: expected {algorithm} {expected}; received '
      f'{digest.hexdigest()}. Download it again, or, for the file of a mirror '
      'that you trust, give --noverify_checksums.'
    )


def index(path: os.PathLike | str) -> list[Member]:
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
        f'{member.path}, {member.name}', f'{inner.name} beyond its end'
      )
  return [inner._replace(path=member.path) for inner in found]


def files(
  path: os.PathLike | str,
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
  with refusing_damage(path), open(path, 'rb') as file:
    source = gzip.open(file) if _is_gzip(file) else file
    with tarfile.open(fileobj=source, mode='r|', tarinfo=_Header) as tar:
      for info in tar:
        _check(path, info)
        # What tarfile keeps of them can be larger than the archive.
        tar.members.clear()
        total += info.size
        if total > limit:
          raise _refusal(path, f'more than {limit} bytes when unpacked')
        if info.isfile() and is_wanted(info.name):
          yield info.name, tar.extractfile(info).read()
    # gzip checks its checksum at its end, which is behind that of the tar.
    while piece := source.read(_COPY_TOGETHER):
      total += len(piece)
      if total > limit + _COPY_TOGETHER:
        raise _refusal(path, f'more than {limit} bytes when unpacked')


@contextlib.contextmanager
def refusing_damage(path: os.PathLike | str) -> abc.Iterator[None]:
  """Turns what reading a damaged archive raises into a DataError."""
  try:
    yield
  except errors.DataError:
    raise
  except _DAMAGE as error:
    raise _refusal(path, f'"{error}"') from error


def _is_gzip(file: BinaryIO) -> bool:
  """Looks at the first bytes, and goes back to them."""
  is_gzip = file.read(2) == b'\x1f\x8b'
  file.seek(0)
  return is_gzip


def _index(path: str, file: BinaryIO) -> list[Member]:
  """Lists the files of the tar that begins where the open file stands."""
  found = []
  # 'r:' refuses compression, in which offsets would mean nothing.
  with tarfile.open(fileobj=file, mode='r:', tarinfo=_Header) as tar:
    for info in tar:
      _check(path, info)
      tar.members.clear()
      if info.isfile():
        found.append(Member(info.name, path, info.offset_data, info.size))
    # A tar ends with blocks of zeros. tarfile is content without them, and
    # stops at a damaged header as if it were the end.
    file.seek(tar.offset)
    if file.read(_BLOCK_BYTES) != bytes(_BLOCK_BYTES):
      raise _refusal(path, f'none after {len(found)} members')
  return found


def _check(path: os.PathLike | str, info: tarfile.TarInfo) -> None:
  if info.size < 0:
    raise _refusal(path, f'{info.name!r} of {info.size} bytes')
  parts = pathlib.PurePosixPath(info.name).parts
  if info.name.startswith('/') or '..' in parts or '\\' in info.name:
    raise _refusal(path, f'a name that leads elsewhere, {info.name!r}')
  if info.issym() or info.islnk():
    raise _refusal(path, f'a link, {info.name!r} to {info.linkname!r}')
  if info.issparse() or not (info.isfile() or info.isdir()):
    raise _refusal(path, f'a special file, {info.name!r}')


def _refusal(path: os.PathLike | str, received: str) -> errors.DataError:
  return errors.DataError(
    f'{os.fspath(path)}: expected a whole tar archive of plain files and '
    f'folders, with its end; received {received}. Download it again.'
  )
