import gzip
import tarfile

import pytest

from slim import errors
from slim.datasets.files import archives
from tests import bounded
from tests.slim import archives_made

HOSTILE = {
  '../evil': ("a path outside the archive's folder", {}),
  'a/../../evil': ("a path outside the archive's folder", {}),
  '/evil': ("a path outside the archive's folder", {}),
  'a\\..\\evil': ("a path outside the archive's folder", {}),
  'soft': ('a link', {'kind': tarfile.SYMTYPE, 'target': '/etc/passwd'}),
  'hard': ('a link', {'kind': tarfile.LNKTYPE, 'target': 'ok'}),
  'device': ('a special file', {'kind': tarfile.CHRTYPE}),
  'pipe': ('a special file', {'kind': tarfile.FIFOTYPE}),
}


def hostile(name):
  _, options = HOSTILE[name]
  return archives_made.tar(
    [
      archives_made.member('ok', b'fine'),
      archives_made.member(name, **options),
    ]
  )


def test_members_are_read_at_their_offsets(tmp_path):
  path = tmp_path / 'a.tar'
  inner = archives_made.tar([archives_made.member('x/y', b'within')])
  path.write_bytes(
    archives_made.tar(
      [
        archives_made.member('folder', kind=tarfile.DIRTYPE),
        archives_made.member('folder/one', b'first' * 300),
        archives_made.member('inner.tar', inner),
      ]
    )
  )
  one, tar = archives.index(path)
  assert (one.name, one.read()) == ('folder/one', b'first' * 300)
  assert tar.read() == inner
  (nested,) = archives.index_inner(tar)
  assert (nested.name, nested.read()) == ('x/y', b'within')
  assert nested.path == str(path)


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_members_are_refused(tmp_path, name):
  path = tmp_path / 'a.tar'
  path.write_bytes(hostile(name))
  with pytest.raises(errors.DataError, match=HOSTILE[name][0]):
    archives.index(path)
  with pytest.raises(errors.DataError, match=HOSTILE[name][0]):
    list(archives.files(path, 1000, lambda _: True))


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_members_of_inner_tars_are_refused(tmp_path, name):
  path = tmp_path / 'a.tar'
  path.write_bytes(
    archives_made.tar([archives_made.member('inner.tar', hostile(name))])
  )
  (inner,) = archives.index(path)
  with pytest.raises(errors.DataError, match=HOSTILE[name][0]):
    archives.index_inner(inner)


# Within the first content, between two members, within the end.
@pytest.mark.parametrize('size', [0, 100, 700, 1024, 1536, 2048])
def test_a_cut_tar_is_refused(tmp_path, size):
  whole = archives_made.tar(
    [
      archives_made.member('one', b'1'),
      archives_made.member('two', b'2'),
    ]
  )
  path = tmp_path / 'a.tar'
  path.write_bytes(whole[:size])
  with pytest.raises(errors.DataError, match='expected a complete tar'):
    archives.index(path)


def test_a_cut_inner_tar_does_not_continue_in_the_outer_one(tmp_path):
  inner = archives_made.tar([archives_made.member('x', bytes(9000))])
  path = tmp_path / 'a.tar'
  path.write_bytes(
    archives_made.tar(
      [
        archives_made.member('inner.tar', inner[:1024]),
        archives_made.member('next', b'another' * 2000),
      ]
    )
  )
  with pytest.raises(errors.DataError, match='expected a complete tar'):
    archives.index_inner(archives.index(path)[0])


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path):
  whole = bytearray(
    archives_made.tar(
      [
        archives_made.member('one', b'1'),
        archives_made.member('two', b'2'),
      ]
    )
  )
  whole[1024 + 150] ^= 0x15  # in the checksum of the second header
  path = tmp_path / 'a.tar'
  path.write_bytes(whole)
  with pytest.raises(errors.DataError, match='expected a complete tar'):
    archives.index(path)


@pytest.mark.parametrize('is_inner', [False, True])
def test_a_header_of_zeros_is_not_taken_for_the_end(is_inner, tmp_path):
  def members():
    return [archives_made.member(name, b'1') for name in ('one', 'two')]

  whole = bytearray(archives_made.tar(members()))
  whole[1024:1536] = bytes(512)  # the second header
  path = tmp_path / 'a.tar'
  if is_inner:
    member = archives_made.member('inner.tar', bytes(whole))
    path.write_bytes(archives_made.tar([member, *members()]))
    (inner, *_) = archives.index(path)
  else:
    path.write_bytes(whole)
  with pytest.raises(errors.DataError, match='data after the end marker'):
    if is_inner:
      archives.index_inner(inner)
    else:
      archives.index(path)
  if not is_inner:
    with pytest.raises(errors.DataError, match='data after the end marker'):
      list(archives.files(path, 1000, lambda _: True))


def test_a_compressed_tar_can_be_streamed_but_not_indexed(tmp_path):
  path = tmp_path / 'a.tgz'
  path.write_bytes(
    archives_made.tar([archives_made.member('one', b'1')], 'w:gz')
  )
  with pytest.raises(errors.DataError, match='expected a complete tar'):
    archives.index(path)
  assert list(archives.files(path, 1000, lambda _: True)) == [('one', b'1')]


def test_a_cut_compressed_tar_is_refused(tmp_path):
  path = tmp_path / 'a.tgz'
  path.write_bytes(
    archives_made.tar([archives_made.member('one', b'1')], 'w:gz')[:-9]
  )
  with pytest.raises(errors.DataError, match='expected a complete tar'):
    list(archives.files(path, 1000, lambda _: True))


def test_an_archive_that_unpacks_to_more_than_the_limit_is_refused(tmp_path):
  path = tmp_path / 'a.tgz'
  path.write_bytes(
    archives_made.tar(
      [archives_made.member(str(i), bytes(600)) for i in range(3)], 'w:gz'
    )
  )
  with pytest.raises(errors.DataError, match='more than 1500 bytes'):
    list(archives.files(path, 1500, lambda _: True))


def test_another_checksum_is_refused_with_the_override(tmp_path):
  path = tmp_path / 'a'
  path.write_bytes(b'abc')
  archives.check_hash(path, 'md5', '900150983cd24fb0d6963f7d28e17f72')
  with pytest.raises(
    errors.DataError, match='expected sha256 00; received ba7816.*--noverify'
  ):
    archives.check_hash(path, 'sha256', '00')


def header(kind, size, name='x'):
  info = tarfile.TarInfo(name)
  info.type, info.size = kind, size
  return info.tobuf(tarfile.GNU_FORMAT)


END = bytes(1024)
SPARSE = b'22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n'
DAMAGED = {
  'long name': header(tarfile.GNUTYPE_LONGNAME, 3 << 29),
  'long link': header(tarfile.GNUTYPE_LONGLINK, 3 << 29),
  'attributes': header(tarfile.XHDTYPE, 3 << 29),
  'negative': header(tarfile.XHDTYPE, -512) + END,
  'negative file': header(tarfile.REGTYPE, -1024) + END,
  'negative attribute': header(tarfile.XHDTYPE, 14)
  + b'14 size=-1024\n'.ljust(512, b'\0')
  + header(tarfile.REGTYPE, 0)
  + END,
  'sparse': header(tarfile.XHDTYPE, len(SPARSE))
  + SPARSE.ljust(512, b'\0')
  + header(tarfile.REGTYPE, 512)
  + b'7777777'.ljust(512, b'\0')
  + END,
  'chain': (header(tarfile.GNUTYPE_LONGNAME, 0)) * 3000 + END,
}


@pytest.mark.parametrize('name', DAMAGED)
def test_small_files_take_neither_much_time_nor_memory(tmp_path, name):
  path = tmp_path / 'a.tar'
  path.write_bytes(DAMAGED[name])
  # As long as it says, without a byte on the disk.
  with open(path, 'r+b') as file:
    file.truncate(max(2 << 30, len(DAMAGED[name])))
  with bounded.memory(200 << 20), bounded.seconds(5):
    with pytest.raises(errors.DataError, match='a complete tar archive'):
      archives.index(path)
    with pytest.raises(errors.DataError, match='a complete tar archive'):
      list(archives.files(path, 1000, lambda _: True))


def blocks(content):
  return content.ljust(-(-len(content) // 512) * 512, b'\0')


def with_sum(block):
  """A header with the checksum that it should have."""
  block = block[:148] + b' ' * 8 + block[156:]
  return block[:148] + b'%06o\0 ' % sum(block) + block[156:]


def attributes(content, kind=tarfile.XHDTYPE):
  """A header of attributes, and a file that has them."""
  content = header(kind, len(content)) + blocks(content)
  return content + header(tarfile.REGTYPE, 0)


def old_sparse(extensions):
  """A sparse file of old GNU tar, its map in further blocks."""
  first = bytearray(header(tarfile.GNUTYPE_SPARSE, 512))
  further = bytearray(b'00000000001\0' * 42 + bytes(8))
  first[482] = further[504] = 1  # there is more
  return with_sum(bytes(first)) + bytes(further) * extensions


def overlapping(length):
  """Records of two bytes by what they say; each name is the rest of all."""
  return b'2 ' * (length // 2) + b'=\n'


TOO_MUCH = {
  'map of a sparse file': (
    attributes(SPARSE)[:-512]
    + header(tarfile.REGTYPE, 1 << 20)
    + b'99999999999\n'
    + b'1\n' * (1 << 19),
    'more than 65536 bytes of headers',
  ),
  'old map of a sparse file': (
    old_sparse(2000),
    'more than 65536 bytes of headers',
  ),
  'digits': (attributes(b'1' * 60000), 'malformed attributes'),
  'digits of a value': (
    attributes(b'1009 a=' + b'1' * 1001 + b'\n'),
    'more than 255 digits in a row',
  ),
  'overlapping attributes': (
    attributes(overlapping(60000)),
    'attributes whose length differs',
  ),
  'attributes of all': (
    b''.join(
      attributes(b'900 %03d=' % i + b'x' * 891 + b'\n', tarfile.XGLTYPE)
      for i in range(80)
    ),
    'more than 65536 bytes of headers',
  ),
}


@pytest.mark.parametrize('name', TOO_MUCH)
def test_headers_that_take_the_reader_s_time_are_refused_early(tmp_path, name):
  content, message = TOO_MUCH[name]
  (tmp_path / 'a.tar').write_bytes(content + END)
  (tmp_path / 'a.tgz').write_bytes(gzip.compress(content + END))
  with pytest.raises(errors.DataError, match=message):
    archives.index(tmp_path / 'a.tar')
  for path in tmp_path.iterdir():
    with pytest.raises(errors.DataError, match=message):
      list(archives.files(path, 1 << 30, lambda _: True))


def test_empty_members_without_end_are_more_than_the_limit(tmp_path):
  content = header(tarfile.REGTYPE, 0) * 5000 + END
  path = tmp_path / 'a.tgz'
  path.write_bytes(gzip.compress(content))
  with pytest.raises(errors.DataError, match='more than 1000 bytes'):
    list(archives.files(path, 1000, lambda _: True))
  assert len(list(archives.files(path, 1 << 20, lambda _: True))) == 5000


def test_a_stream_whose_end_is_missing_is_refused(tmp_path):
  path = tmp_path / 'a.tgz'
  path.write_bytes(gzip.compress(header(tarfile.REGTYPE, 0)))
  with pytest.raises(errors.DataError, match='no end marker after 1 members'):
    list(archives.files(path, 1000, lambda _: True))


@pytest.mark.parametrize('size', [0, 1, 511, 512, 513, 5000])
def test_streamed_files_have_their_content(tmp_path, size):
  members = {f'{i}': bytes([i]) * size for i in range(1, 4)}
  content = archives_made.tar(
    [archives_made.member(*item) for item in members.items()], 'w:gz'
  )
  path = tmp_path / 'a.tgz'
  path.write_bytes(content)
  found = dict(archives.files(path, 1 << 20, lambda name: name != '2'))
  assert found == {name: members[name] for name in ('1', '3')}


def test_global_attributes_are_not_stored_for_each_member(tmp_path):
  attributes = b''.join(
    f'{len(f"{i:05d}") + 6} {i:05d}=1\n'.encode() for i in range(4000)
  )
  content = header(tarfile.XGLTYPE, len(attributes))
  content += attributes.ljust(-(-len(attributes) // 512) * 512, b'\0')
  content += header(tarfile.REGTYPE, 0) * 1000 + END
  path = tmp_path / 'a.tar'
  path.write_bytes(content)
  with bounded.memory(50 << 20), bounded.seconds(5):
    assert len(archives.index(path)) == 1000
    assert len(list(archives.files(path, 1000, lambda _: True))) == 1000
