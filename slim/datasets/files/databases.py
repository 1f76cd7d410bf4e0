"""Opens LMDB and LevelDB databases once per process; reads by key number."""

import functools
import hashlib
import importlib
import os
import pathlib
import threading
import types
import weakref
from collections import abc

import numpy as np

from slim import errors

_unreadable = functools.partial(
  errors.refusal,
  expected='a complete, undamaged database',
  remedy='Copy or create it again.',
)

# Package by kind of database, the name for `import` and for `pip install`.
_PACKAGES = {'lmdb': 'lmdb', 'leveldb': 'plyvel'}
KINDS = tuple(_PACKAGES)


class Database:
  """A database that stays open while it is referenced.

  Attributes:
    path: path of its folder or file.
    count: number of keys.
  """

  def __init__(
    self,
    path: pathlib.Path,
    keys: abc.Iterable[bytes],
    get: abc.Callable[[bytes], bytes | None],
    close: abc.Callable[[], None],
  ):
    """Reads all keys; `get` returns None for a missing key."""
    self.path = path
    self._get = get
    weakref.finalize(self, close)
    # One string and the ends of the keys: a million objects would take 100 MB.
    joined, lengths = bytearray(), []
    for key in keys:
      joined += key
      lengths.append(len(key))
    self._keys = bytes(joined)
    self._ends = np.cumsum(lengths, dtype=np.int64)
    self.count = len(lengths)

  def digest(self) -> str:
    """Returns 16 hex digits, equal for equal keys."""
    found = hashlib.sha256(self._keys)
    found.update(self._ends.data)
    return found.hexdigest()[:16]

  def read(self, number: int) -> bytes:
    """Returns the value of a key; keys are numbered from 0 in key order.

    Raises:
      slim.errors.DataError: the key is gone, or its value cannot be read.
    """
    begin = int(self._ends[number - 1]) if number else 0
    key = self._keys[begin : int(self._ends[number])]
    try:
      value = self._get(key)
    except Exception as error:
      raise _unreadable(
        self.path, received=f'"{error}" at the key {key!r}'
      ) from error
    if value is None:
      raise errors.DataError(
        f'{self.path}: expected the key {key!r}, which was there when the '
        'database was opened; received none. Do not change a database that '
        'is being read.'
      )
    return value


_lock = threading.Lock()
_opened: weakref.WeakValueDictionary[str, Database] = (
  weakref.WeakValueDictionary()
)


def open_database(path: str | os.PathLike[str]) -> Database:
  """Opens a database, or returns the one that this process has open.

  A process cannot open a database twice. Two processes cannot open the same
  LevelDB.

  Args:
    path: an LMDB (a folder with data.mdb, or a file) or a LevelDB (a folder
      with CURRENT).

  Returns:
    The database, with at least one key.

  Raises:
    slim.errors.DataError: there is no database, its package is missing, or it
      is damaged, cut short, empty, or locked by another process.
  """
  real_path = os.path.realpath(path)
  kind = kind_of(real_path)
  with _lock:
    database = _opened.get(real_path)
    if database is None:
      module = package(kind)
      try:
        database = _OPENERS[kind](module, pathlib.Path(real_path))
      except module.Error as error:
        raise _unreadable(real_path, received=f'"{error}"') from error
      if not database.count:
        raise errors.DataError(
          f'{path}: expected at least one key; received an empty database. '
          'Create it again.'
        )
      _opened[real_path] = database
    return database


def package(kind: str) -> types.ModuleType:
  """Imports the package for a kind of database.

  Args:
    kind: 'lmdb' or 'leveldb'.

  Raises:
    slim.errors.DataError: the kind is unknown, or the package is not
      installed.
  """
  name = errors.lookup(_PACKAGES, kind, 'kind of database')
  try:
    return importlib.import_module(name)
  except ImportError as error:
    raise errors.DataError(
      f'{kind}: expected the package {name}; received "{error}". Install it '
      f'with: pip install {name}, or with the project: '
      f'{errors.install_command("databases")}.'
    ) from error


def kind_of(path: str | os.PathLike[str]) -> str:
  """Returns the kind of the database at a path, one of `KINDS`.

  Raises:
    slim.errors.DataError: there is no database at the path.
  """
  path = pathlib.Path(path)
  if path.is_file() or (path / 'data.mdb').is_file():
    return 'lmdb'
  if (path / 'CURRENT').is_file():
    return 'leveldb'
  raise errors.DataError(
    f'{path}: expected an LMDB (data.mdb) or a LevelDB (CURRENT); received '
    f'{"a folder without either" if path.is_dir() else "no such path"}. '
    'Create one with: terngrad convert database, or choose another '
    '--data_dir.'
  )


def _open_lmdb(lmdb: types.ModuleType, path: pathlib.Path) -> Database:
  file = path if path.is_file() else path / 'data.mdb'
  # Without a writer no lock is needed, so read-only disks work.
  environment = lmdb.open(
    str(path),
    subdir=path.is_dir(),
    readonly=True,
    lock=False,
    readahead=False,
  )
  # A read beyond the end of the file would kill the process (SIGBUS).
  pages = environment.info()['last_pgno'] + 1
  expected = pages * environment.stat()['psize']
  size = file.stat().st_size
  if size < expected:
    environment.close()
    raise _unreadable(
      path, received=f'{size} of {expected} bytes: it was cut short'
    )

  def keys() -> abc.Iterator[bytes]:
    with environment.begin() as transaction:
      yield from transaction.cursor().iternext(values=False)

  def get(key: bytes) -> bytes | None:
    with environment.begin() as transaction:
      return transaction.get(key)

  return Database(path, keys(), get, environment.close)


def _open_leveldb(plyvel: types.ModuleType, path: pathlib.Path) -> Database:
  try:
    database = plyvel.DB(
      str(path), create_if_missing=False, paranoid_checks=True
    )
  except plyvel.IOError as error:
    if 'lock' not in str(error):
      raise
    raise errors.DataError(
      f'{path}: expected a LevelDB that no other process has open; received '
      f'"{error}". Give each process a copy of the folder, or make an LMDB, '
      'which many processes can read: terngrad convert database '
      '--db_type=lmdb.'
    ) from error

  def keys() -> abc.Iterator[bytes]:
    # The plain iterator stops silently if the last table is damaged.
    with database.raw_iterator(verify_checksums=True) as iterator:
      iterator.seek_to_first()
      while iterator.valid():
        yield iterator.key()
        iterator.next()

  get = functools.partial(database.get, verify_checksums=True)
  try:
    return Database(path, keys(), get, database.close)
  except plyvel.Error:
    database.close()
    raise


_OPENERS = {'lmdb': _open_lmdb, 'leveldb': _open_leveldb}
