"""Tar archives."""

import gzip
import io
import tarfile

from slim import errors
from slim.datasets.files import archives
from tests.fuzzing import mutation
from tests.fuzzing.target import Target
from tests.slim import archives_made

_REFUSED = (errors.DataError,)
_BLOCK = 512
_CHECKSUM = slice(148, 156)


def _tars():
  """Plain tars of both formats, with long names, folders and tars in them."""
  members = [
    archives_made.member('a/one.txt', b'one' * 300),
    archives_made.member('a', kind=tarfile.DIRTYPE),
    archives_made.member('b' * 90 + '/' + 'c' * 120, b'two'),
    archives_made.member('empty'),
  ]
  made = []
  for tar_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
    buffer = io.BytesIO()
    with tarfile.open(
      fileobj=buffer, mode='w', format=tar_format, pax_headers={'comment': 'x'}
    ) as tar:
      for info, file in members:
        file.seek(0)
        tar.addfile(info, file)
    made.append(buffer.getvalue())
  return made


def _with_sums(random, content):
  """The tar with the checksums that its headers should have."""
  del random
  changed = bytearray(content)
  for begin in range(0, len(changed) - _BLOCK + 1, _BLOCK):
    block = changed[begin : begin + _BLOCK]
    if block[257:262] == b'ustar':
      block[_CHECKSUM] = b' ' * 8
      block[_CHECKSUM] = b'%06o\0 ' % sum(block)
      changed[begin : begin + _BLOCK] = block
  return bytes(changed)


_TAR_WORDS = (
  *(b'ustar\x0000', b'ustar  \0', b'path=', b'size=', b'20 path=../x\n'),
  *(b'GNU.sparse.major=1\n', b'22 GNU.sparse.size=9\n', b'00000000017\0'),
  *(
    b'\x80\0\0\0\0\0\0\0\0\0\0\xff',
    b'\xff' * 12,
    *b'0 1 2 3 5 6 L K x g S'.split(),
  ),
)


def tar():
  """A plain tar, of which every file is read."""

  def parse(content, folder):
    path = folder / 'a.tar'
    path.write_bytes(content)
    for member in archives.index(path):
      try:
        member.read()
      except OSError:  # documented: cut short
        pass

  return Target(
    parse,
    _tars(),
    _REFUSED,
    ['slim.datasets.files.archives', 'tarfile'],
    _TAR_WORDS,
    _with_sums,
  )


def tar_within():
  """A plain tar within a tar."""

  def parse(content, folder):
    path = folder / 'a.tar'
    path.write_bytes(bytes(_BLOCK) + content + b'behind' * 100)
    whole = archives.Member('in.tar', str(path), _BLOCK, len(content))
    for member in archives.index_inner(whole):
      if member.offset + member.size > _BLOCK + len(content):
        raise AssertionError('a member beyond the end')
      member.read()

  return tar()._replace(parse=parse)


def tar_stream():
  """A tar that is read in one pass, compressed or not."""
  limit = 1 << 22

  def parse(content, folder):
    path = folder / 'a.tar'
    path.write_bytes(content)
    total = 0
    for _, one in archives.files(path, limit, lambda name: True):
      total += len(one)
    if total > limit:
      raise AssertionError('more than the limit')

  def repair(random, content):
    if content[:2] != b'\x1f\x8b':
      return _with_sums(random, content)
    return gzip.compress(
      _with_sums(
        random, mutation.mutated(random, random.choice(tars), tars, _TAR_WORDS)
      ),
      1,
    )

  tars = _tars()
  return tar()._replace(
    parse=parse,
    seeds=[*tars, *(gzip.compress(t) for t in tars)],
    repair=repair,
  )
