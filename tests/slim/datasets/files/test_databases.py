import gc
import subprocess
import sys

import lmdb
import pytest

from slim import errors
from slim.datasets.files import databases

KEYS = [b'%03d' % i for i in range(300)] + [b'a longer key\x00']
KINDS = ('lmdb', 'leveldb')


def value(key):
  return key * 700  # more than a page for the longest


def write_lmdb(path, **options):
  environment = lmdb.open(str(path), map_size=2**26, **options)
  with environment.begin(write=True) as transaction:
    for key in KEYS:
      transaction.put(key, value(key))
  environment.close()


def write_leveldb(path):
  plyvel = pytest.importorskip('plyvel', reason='no wheel for this Python')
  database = plyvel.DB(str(path), create_if_missing=True)
  for key in KEYS:
    database.put(key, value(key))
  # Tables, not only the log.
  database.compact_range()
  database.close()


@pytest.fixture(params=KINDS)
def path(request, tmp_path):
  path = tmp_path / 'a database'
  {'lmdb': write_lmdb, 'leveldb': write_leveldb}[request.param](path)
  return path


def test_keys_are_read_by_number_in_any_order(path):
  database = databases.open_database(path)
  assert database.count == len(KEYS)
  for number in (300, 0, 150, 299, 150):
    assert database.read(number) == value(KEYS[number])


def test_a_process_opens_a_database_once_under_any_path(path, tmp_path):
  first = databases.open_database(path)
  (tmp_path / 'link').symlink_to(path)
  assert databases.open_database(tmp_path / 'link') is first


def test_a_database_is_closed_when_it_is_unreferenced(path):
  databases.open_database(path)
  gc.collect()
  if (path / 'CURRENT').exists():
    import plyvel

    plyvel.DB(str(path)).close()
  else:
    lmdb.open(str(path)).close()


def test_lmdb_in_one_file_is_read(tmp_path):
  write_lmdb(tmp_path / 'one file', subdir=False)
  assert databases.open_database(tmp_path / 'one file').count == len(KEYS)


def test_several_processes_read_an_lmdb(tmp_path):
  write_lmdb(tmp_path / 'db')
  database = databases.open_database(tmp_path / 'db')
  assert run_other_process(tmp_path / 'db') == f'{len(KEYS)}\n'
  assert database.count == len(KEYS)


def test_second_process_is_advised_to_use_copies_or_lmdb(tmp_path):
  write_leveldb(tmp_path / 'db')
  database = databases.open_database(tmp_path / 'db')
  said = run_other_process(tmp_path / 'db')
  assert 'expected a LevelDB that no other process has open' in said
  assert 'a copy of the folder, or make an LMDB' in said
  assert database.count == len(KEYS)


OPEN = """
import sys
from slim import errors
from slim.datasets.files import databases
try:
  print(databases.open_database(sys.argv[1]).count)
except errors.DataError as error:
  print(error)
"""


def run_other_process(path):
  return subprocess.run(
    [sys.executable, '-c', OPEN, str(path)],
    capture_output=True,
    text=True,
    check=True,
    timeout=120,
  ).stdout


@pytest.mark.parametrize('share', [0.01, 0.5, 0.999])
def test_truncated_lmdb_is_refused(tmp_path, share):
  write_lmdb(tmp_path / 'db')
  file = tmp_path / 'db' / 'data.mdb'
  content = file.read_bytes()
  file.write_bytes(content[: int(len(content) * share)])
  with pytest.raises(errors.DataError, match='undamaged database; received'):
    databases.open_database(tmp_path / 'db')


@pytest.mark.parametrize('content', [b'', b'x' * 100, b'x' * 8192])
def test_files_other_than_lmdb_are_refused(tmp_path, content):
  (tmp_path / 'data.mdb').write_bytes(content)
  with pytest.raises(errors.DataError, match='undamaged database; received'):
    databases.open_database(tmp_path)


@pytest.mark.parametrize('left', [0, 1000, -1])
def test_truncated_leveldb_is_refused(tmp_path, left):
  write_leveldb(tmp_path / 'db')
  table = sorted((tmp_path / 'db').glob('*.ldb'))[-1]
  table.write_bytes(table.read_bytes()[:left])
  with pytest.raises(errors.DataError, match='undamaged database; received'):
    databases.open_database(tmp_path / 'db')


def test_damaged_value_of_a_leveldb_is_refused(tmp_path):
  write_leveldb(tmp_path / 'db')
  (table, *_) = sorted((tmp_path / 'db').glob('*.ldb'))
  content = bytearray(table.read_bytes())
  content[len(content) // 2] ^= 1
  table.write_bytes(content)

  def read_all():
    database = databases.open_database(tmp_path / 'db')
    for number in range(database.count):
      database.read(number)

  with pytest.raises(errors.DataError, match='undamaged database; received'):
    read_all()


def test_empty_database_is_refused(tmp_path):
  lmdb.open(str(tmp_path / 'db')).close()
  with pytest.raises(errors.DataError, match='received an empty database'):
    databases.open_database(tmp_path / 'db')


def test_removed_key_is_named(tmp_path):
  database = databases.Database(
    tmp_path, [b'a', b'key'], lambda key: None, lambda: None
  )
  with pytest.raises(errors.DataError, match="expected the key b'key', which"):
    database.read(1)


def test_absent_database_is_refused(tmp_path):
  with pytest.raises(
    errors.DataError, match='received a folder without either'
  ):
    databases.open_database(tmp_path)
  with pytest.raises(errors.DataError, match='no such path.*convert database'):
    databases.open_database(tmp_path / 'nowhere')


@pytest.mark.parametrize(
  ('kind', 'name'), [('lmdb', 'lmdb'), ('leveldb', 'plyvel')]
)
def test_missing_package_is_named_with_the_command(
  tmp_path, monkeypatch, kind, name
):
  monkeypatch.setitem(sys.modules, name, None)
  with pytest.raises(errors.DataError, match=f'pip install {name}, or'):
    databases.package(kind)


def test_unknown_kind_is_refused():
  with pytest.raises(errors.UnknownNameError, match="did you mean 'lmdb'"):
    databases.package('lmbd')
