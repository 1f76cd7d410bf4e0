"""Finds and reads the documents of a corpus of text."""

import hashlib
import os
import pathlib
import platform
import stat
import sysconfig
from collections import abc
from typing import NamedTuple

from slim import errors

_STANDARD_LIBRARY_SUFFIX = '.py'
# Folders of the standard library that differ between equal versions.
_LEFT_OUT = ('dist-packages', 'idlelib', 'site-packages', 'test', 'tests')
# Continuation bytes of UTF-8.
_CONTINUATION = range(0x80, 0xC0)
# Parts of the text in percent, in this order.
SPLITS = {'train': 90, 'validation': 5, 'test': 5}


class Corpus(NamedTuple):
  """The documents of a corpus.

  Attributes:
    documents: contents, not empty, each once, in the order of their SHA-256.
    digest: 16 hex digits, equal for equal documents wherever they are.
    source: origin of the documents, for messages.
    left_out: number of binary files that were left out.
  """

  documents: tuple[bytes, ...]
  digest: str
  source: str
  left_out: int = 0


def read(
  paths: abc.Sequence[str],
  suffixes: abc.Collection[str] = (),
  output: str = '',
) -> Corpus:
  """Reads files and all files of folders.

  Of folders, files with a zero byte (binary files), hidden files and folders,
  links to folders and special files are left out. Files given by name are read
  as they are.

  Args:
    paths: files and folders.
    suffixes: ends of the names of files to read in folders, such as '.md'; ()
      for all.
    output: folder of the conversion, which is left out of other folders: it
      has no documents.

  Raises:
    slim.errors.DataError: a path does not exist or cannot be read, or is the
      output, or there is no text.
  """
  contents, left_out = [], 0
  for path in paths:
    if not os.path.isdir(path):
      contents.append(_read_file(path))
      continue
    if _is_same(path, output):
      raise errors.refusal(
        path,
        'another folder than that of the result',
        'the same one',
        'Convert to another folder.',
      )
    for name in _files(path, output=output):
      if suffixes and not name.endswith(tuple(suffixes)):
        continue
      content = _read_file(name)
      left_out += b'\0' in content
      if b'\0' not in content:
        contents.append(content)
  return _corpus(contents, ', '.join(paths), left_out)


def read_standard_library() -> Corpus:
  """Reads the sources of the standard library of this Python, without tests.

  Equal versions have equal sources on most systems; some distributions change
  some files. The digest shows it.

  Raises:
    slim.errors.DataError: this Python has no sources.
  """
  folder = sysconfig.get_path('stdlib')
  names = _files(folder, _LEFT_OUT)
  inner = (os.path.relpath(name, folder) for name in names)
  contents = [
    _read_file(os.path.join(folder, name))
    for name in inner
    if name.endswith(_STANDARD_LIBRARY_SUFFIX)
    and not set(pathlib.PurePath(name).parts).intersection(_LEFT_OUT)
    # These depend on the machine.
    and not os.path.islink(os.path.join(folder, name))
    and not os.path.basename(name).startswith('_sysconfigdata')
  ]
  version = platform.python_version()
  return _corpus(contents, f'the standard library of Python {version}', 0)


def split(documents: abc.Sequence[bytes]) -> dict[str, list[bytes]]:
  """Cuts the joined documents into `SPLITS`, between two characters of UTF-8.

  Args:
    documents: contents, not empty.

  Returns:
    The documents of each split; the ones at a cut are parts.
  """
  total, end, percent = sum(map(len, documents)), 0, 0
  splits: dict[str, list[bytes]] = {}
  rest = [*documents][::-1]
  for name, part in SPLITS.items():
    percent += part
    pieces = splits.setdefault(name, [])
    while rest and end < total * percent // 100:
      document = rest.pop()
      size = min(len(document), total * percent // 100 - end)
      # A character has at most three of them; in other files they mean nothing.
      for _ in range(3):
        size += size < len(document) and document[size] in _CONTINUATION
      pieces.append(document[:size])
      if size < len(document):
        rest.append(document[size:])
      end += size
  return splits


def _files(
  folder: str, left_out: abc.Collection[str] = (), output: str = ''
) -> abc.Iterator[str]:
  """Lists the regular files below a folder, and follows no link to a folder.

  Args:
    folder: the folder.
    left_out: names of folders whose files are left out.
    output: path of another such folder, which may be missing.
  """

  def refuse(error: OSError) -> None:
    raise _unreadable(error.filename, error)

  for parent, folders, names in os.walk(folder, onerror=refuse):
    folders[:] = sorted(
      name
      for name in folders
      if not name.startswith('.')
      and name not in left_out
      and not _is_same(os.path.join(parent, name), output)
    )
    for name in sorted(names):
      path = os.path.join(parent, name)
      if not name.startswith('.') and os.path.isfile(path):
        yield path


def _is_same(path: str, output: str) -> bool:
  return os.path.exists(output) and os.path.samefile(path, output)


def _read_file(path: str) -> bytes:
  try:
    # Opening a pipe would wait for its writer.
    if not stat.S_ISREG(os.stat(path).st_mode):
      raise errors.refusal(
        path, 'a file or a folder', 'a special file', 'Give another --source.'
      )
    return pathlib.Path(path).read_bytes()
  except (OSError, ValueError) as error:
    if isinstance(error, errors.DataError):
      raise
    raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> errors.DataError:
  received = getattr(error, 'strerror', None) or error
  return errors.refusal(
    path,
    'text that can be read',
    f'"{received}"',
    'Correct --source, or the permissions of the file.',
  )


def _corpus(
  contents: abc.Iterable[bytes], source: str, left_out: int
) -> Corpus:
  found = {hashlib.sha256(text).digest(): text for text in contents if text}
  if not found:
    raise errors.refusal(
      source or 'source',
      'files with text',
      f'none; {left_out} binary files were left out',
      'Give other files or folders; a file given by name is read as it is.',
    )
  ordered = sorted(found)
  digest = hashlib.sha256(b''.join(ordered)).hexdigest()[:16]
  return Corpus(tuple(found[key] for key in ordered), digest, source, left_out)
