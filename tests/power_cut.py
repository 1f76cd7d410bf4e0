"""A disk that loses all unsynced data when its power is cut.

The pessimist's reading of POSIX: bytes are on the disk once their file was
synced, a name once its folder was.
"""

import os
import pathlib
import stat


class Disk:
  """What is on the disk, for a process whose `os.fsync` is watched."""

  def __init__(self, monkeypatch):
    """Watches from now on; what is there already is not on the disk."""
    self._bytes = {}
    self._names = {}
    self._sync = os.fsync
    monkeypatch.setattr(os, 'fsync', self._watched)

  def _watched(self, file):
    descriptor = file if isinstance(file, int) else file.fileno()
    status = os.fstat(descriptor)
    path = pathlib.Path(os.readlink(f'/proc/self/fd/{descriptor}'))
    if stat.S_ISDIR(status.st_mode):
      self._names[status.st_ino] = {p.name: _key(p) for p in path.iterdir()}
    else:
      # An inode that is held is given to no other file.
      held = os.open(path, os.O_RDONLY)
      self._bytes[status.st_ino] = path.read_bytes(), held
    self._sync(descriptor)

  def after_power_cut(self, folder, target):
    """Copies a folder to `target` as a power cut would leave it.

    Args:
      folder: path that is itself on the disk.
      target: path that does not exist.

    Returns:
      `target`.
    """
    self._restore(_key(folder), pathlib.Path(target))
    return target

  def _restore(self, key, target):
    number, is_folder = key
    if not is_folder:
      target.write_bytes(self._bytes.get(number, (b'', None))[0])
      return
    target.mkdir()
    for name, inner in self._names.get(number, {}).items():
      self._restore(inner, target / name)


def _key(path):
  status = os.lstat(path)
  return status.st_ino, stat.S_ISDIR(status.st_mode)
