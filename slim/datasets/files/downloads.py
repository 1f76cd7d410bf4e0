"""Downloads large files over HTTP with resume, checksums and atomic moves."""

import base64
import errno
import http.client
import pathlib
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import abc
from typing import BinaryIO
from typing import NamedTuple

from absl import logging

from slim import errors
from slim.datasets.files import archives
from slim.datasets.records import disk
from slim.datasets.records import progress

_READ_BYTES = 1 << 20  # bytes
_SECONDS = 60  # without a byte, after which a connection is closed
_LOOPBACK = ('127.0.0.1', '::1', 'localhost')
# Temporary errors, after which a retry may succeed.
_TEMPORARY_ERRORS = (OSError, http.client.HTTPException)


class Remote(NamedTuple):
  """A file to download.

  Attributes:
    url: address of the file.
    name: file name to save it under.
    algorithm: checksum algorithm, 'sha256' or 'md5'; '' if no checksum is
      published.
    digest: the checksum.
  """

  url: str
  name: str
  algorithm: str = ''
  digest: str = ''


class Credentials(NamedTuple):
  """User name and key; sent only to the site of the URL."""

  user: str
  key: str


class Client(NamedTuple):
  """Options of downloads.

  Attributes:
    credentials: sent with every request, or None.
    verify: whether to check the checksums.
    attempts: consecutive attempts without a new byte before giving up.
    pause: waits for a number of seconds.
  """

  credentials: Credentials | None = None
  verify: bool = True
  attempts: int = 5
  pause: abc.Callable[[float], None] = time.sleep


def fetch(remote: Remote, folder: pathlib.Path, client: Client) -> pathlib.Path:
  """Downloads a file, unless it exists, and checks it.

  Resumes the partial file of an earlier run if the checksum of the whole file
  is known, which detects parts that do not belong together.

  Args:
    remote: the file.
    folder: output folder; created if it does not exist.
    client: options of downloads.

  Raises:
    slim.errors.DataError: the file is not available or does not match its
      checksum, another process is downloading it, or the disk is full. An
      existing file with a wrong checksum is not changed.
  """
  path = folder / remote.name
  part = folder / f'{remote.name}.part'
  try:
    if path.is_file():
      _check(path, remote, client)
      return path
    folder.mkdir(parents=True, exist_ok=True)
    with open(part, 'ab') as file:
      # The lock excludes other processes.
      if not disk.lock(file):
        raise errors.DataError(
          f'{part}: expected a file that no other process downloads; received '
          'one that another process is downloading. Wait until it has finished.'
        )
      if not disk.is_at(file, part):
        # That process has just renamed or deleted it.
        return fetch(remote, folder, client)
      if not (remote.digest and client.verify):
        _empty(file)
      _fetch_all(remote, file, client)
      try:
        _check(part, remote, client)
      except errors.DataError:
        part.unlink()
        raise
      disk.put(part, path)
  except OSError as error:
    raise errors.DataError(
      f'{path}: expected a writable folder with free space; received '
      f'"{error}". Free some space and run the command again; it continues.'
    ) from error
  return path


def check_space(
  folder: pathlib.Path,
  remotes: abc.Iterable[Remote],
  client: Client,
  extra_bytes: abc.Callable[[int], int] = lambda total: 0,
) -> None:
  """Refuses downloads that do not fit on the disk.

  Args:
    folder: output folder.
    remotes: the files; existing ones need no space.
    client: options of the requests for their sizes.
    extra_bytes: takes the size of all files; returns the size of other files
      that will be written, all in bytes.

  Raises:
    slim.errors.DataError: the free space is too small, or a size is not
      available.
  """
  total = missing = 0
  for remote in remotes:
    path = folder / remote.name
    size = path.stat().st_size if path.is_file() else _size(remote, client)
    total += size
    if not path.is_file():
      part = folder / f'{remote.name}.part'
      missing += size - (part.stat().st_size if part.is_file() else 0)
  needed = missing + extra_bytes(total)
  existing = next(p for p in (folder, *folder.resolve().parents) if p.is_dir())
  free = shutil.disk_usage(existing).free
  if free < needed:
    raise errors.DataError(
      f'{folder}: expected {needed:,} bytes of free space for the files and '
      f'the shards; received {free:,}. Free some space, or choose another '
      'folder.'
    )


def _check(path: pathlib.Path, remote: Remote, client: Client) -> None:
  if remote.digest and client.verify:
    archives.check_hash(path, remote.algorithm, remote.digest)


def _fetch_all(remote: Remote, file: BinaryIO, client: Client) -> None:
  failures = 0
  while True:
    before = file.tell()
    try:
      if _fetch_more(remote, file, client):
        return
      reason = 'the connection ended early'
    except urllib.error.HTTPError as error:
      error.close()
      if error.code < 500:
        raise _refused(remote, f'{error.code} {error.reason}') from error
      reason = f'{error.code} {error.reason}'
    except _TEMPORARY_ERRORS as error:
      if getattr(error, 'errno', None) == errno.ENOSPC:
        raise
      reason = str(error)
    failures = failures + 1 if file.tell() <= before else 1
    if failures >= client.attempts:
      raise _refused(remote, reason)
    logging.info(
      '%s: %s; resuming at byte %d.', remote.url, reason, file.tell()
    )
    client.pause(2.0**failures)


def _fetch_more(remote: Remote, file: BinaryIO, client: Client) -> bool:
  """Sends one request; returns whether the file is complete."""
  start = file.tell()
  headers = {'Range': f'bytes={start}-'} if start else {}
  try:
    response = _open(remote, client, headers)
  except urllib.error.HTTPError as error:
    if error.code != 416:
      raise
    error.close()
    # The file ends where our part ends, or it is a different file.
    if error.headers.get('Content-Range') == f'bytes */{start}':
      return True
    _empty(file)
    return False
  with response:
    total = _total(response, start)
    if response.status != 206 or total is None and start:
      _empty(file)
      start = 0
    with progress.Progress(
      total=total,
      initial=start,
      desc=remote.name,
      unit='B',
      unit_scale=True,
    ) as bar:
      while piece := response.read(_READ_BYTES):
        file.write(piece)
        file.flush()
        bar.update(len(piece))
  return total is None or file.tell() == total


def _empty(file: BinaryIO) -> None:
  file.truncate(0)
  file.seek(0)


def _total(response: http.client.HTTPResponse, start: int) -> int | None:
  """Returns the size of the whole file; None if the server does not say."""
  if response.status == 206:
    found = re.fullmatch(
      r'bytes (\d+)-\d+/(\d+)', response.headers.get('Content-Range', '')
    )
    if not found or int(found[1]) != start:
      raise http.client.HTTPException(
        'the server sent another range than requested'
      )
    return int(found[2])
  return _length(response)


def _length(response: http.client.HTTPResponse) -> int | None:
  """Returns the bytes of an answer; None if the server does not say."""
  length = response.headers.get('Content-Length')
  if length and not length.isdecimal():
    raise http.client.HTTPException(f'the server sent the length {length!r}')
  return int(length) if length else None


def _size(remote: Remote, client: Client) -> int:
  try:
    with _open(remote, client, {}, 'HEAD') as response:
      return _length(response) or 0
  except _TEMPORARY_ERRORS as error:
    raise _refused(remote, str(error)) from error


def _open(
  remote: Remote, client: Client, headers: dict[str, str], method: str = 'GET'
) -> http.client.HTTPResponse:
  request = urllib.request.Request(remote.url, headers=headers, method=method)
  parts = urllib.parse.urlsplit(remote.url)
  if client.credentials:
    if parts.scheme != 'https' and parts.hostname not in _LOOPBACK:
      raise errors.DataError(
        f'{remote.url}: expected https, because credentials are sent; received '
        f'{parts.scheme}. Use an address with https.'
      )
    secret = ':'.join(client.credentials).encode()
    # Unredirected: the redirect target, another host, does not receive them.
    request.add_unredirected_header(
      'Authorization', f'Basic {base64.b64encode(secret).decode()}'
    )
  return urllib.request.urlopen(request, timeout=_SECONDS)


def _refused(remote: Remote, reason: str) -> errors.DataError:
  return errors.DataError(
    f'{remote.url}: expected a file to download; received "{reason}". Check '
    'the network and the credentials and run the command again; it continues. '
    f'Or download {remote.name} by other means and put it into the folder.'
  )
