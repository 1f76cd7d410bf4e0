import tarfile

import pytest

from slim import errors
from slim.datasets.files import archives
from tests import bounded
from tests.slim import archives_made

HOSTILE = {
  '../evil': ('a name that leads elsewhere', {}),
  'a/../../evil': ('a name that leads elsewhere', {}),
  '/evil': ('a name that leads elsewhere', {}),
  'a\\..\\evil': ('a name that leads elsewhere', {}),
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


def test_members_are_read_at_their_places(tmp_path):
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
  (within,) = archives.index_within(tar)
  assert (within.name, within.read()) == ('x/y', b'within')
  assert within.path == str(path)


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
    archives.index_within(inner)


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
  with pytest.raises(errors.DataError, match='expected a whole tar archive'):
    archives.index(path)


def test_an_inner_tar_that_is_cut_does_not_read_on_in_the_outer_one(tmp_path):
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
  with pytest.raises(errors.DataError, match='expected a whole tar archive'):
    archives.index_within(archives.index(path)[0])


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
  with pytest.raises(errors.DataError, match='expected a whole tar archive'):
    archives.index(path)


def test_a_compressed_tar_has_no_places_but_can_be_streamed(tmp_path):
  path = tmp_path / 'a.tgz'
  path.write_bytes(
    archives_made.tar([archives_made.member('one', b'1')], 'w:gz')
  )
  with pytest.raises(errors.DataError, match='expected a whole tar archive'):
    archives.index(path)
  assert list(archives.files(path, 1000, lambda _: True)) == [('one', b'1')]


def test_a_cut_compressed_tar_is_refused(tmp_path):
  path = tmp_path / 'a.tgz'
  path.write_bytes(
    archives_made.tar([archives_made.member('one', b'1')], 'w:gz')[:-9]
  )
  with pytest.raises(errors.DataError, match='expected a whole tar archive'):
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


def test_another_checksum_is_refused_with_the_way_round(tmp_path):
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
def test_few_bytes_take_neither_time_nor_memory(tmp_path, name):
  path = tmp_path / 'a.tar'
  path.write_bytes(DAMAGED[name])
  # As long as it says, without a byte on the disk.
  with open(path, 'r+b') as file:
    file.truncate(max(2 << 30, len(DAMAGED[name])))
  with bounded.memory(200 << 20), bounded.seconds(5):
    with pytest.raises(errors.DataError, match='a whole tar archive'):
      archives.index(path)
    with pytest.raises(errors.DataError, match='a whole tar archive'):
      list(archives.files(path, 1000, lambda _: True))


def test_attributes_of_all_are_not_kept_for_each(tmp_path):
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
