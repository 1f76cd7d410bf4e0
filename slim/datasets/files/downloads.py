"""Fetches large files over HTTP: resumed, checked, and whole or not there."""

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

_READ_TOGETHER = 1 << 20  # bytes
_SECONDS = 60  # without a byte, after which a connection is given up
_LOOPBACK = ('127.0.0.1', '::1', 'localhost')
# What passes, so that trying again makes sense.
_PASSING = (OSError, http.client.HTTPException)


class Remote(NamedTuple):
  """A file to fetch.

  Attributes:
    url: where it is.
    name: that it gets.
    algorithm: of its checksum: 'sha256' or 'md5'; '' where none is published.
    digest: its checksum.
  """

  url: str
  name: str
  algorithm: str = ''
  digest: str = ''


class Credentials(NamedTuple):
  """What a site knows its user by; sent to that site alone."""

  user: str
  key: str


class Client(NamedTuple):
  """How to fetch.

  Attributes:
    credentials: sent with every request, or None.
    verify: check the checksums.
    attempts: in a row without a new byte, after which to give up.
    pause: waits that many seconds.
  """

  credentials: Credentials | None = None
  verify: bool = True
  attempts: int = 5
  pause: abc.Callable[[float], None] = time.sleep


def fetch(remote: Remote, folder: pathlib.Path, client: Client) -> pathlib.Path:
  """Fetches a file that is not there yet, and checks it.

  A part of it that an earlier run fetched is continued where the checksum of
  the file is known, which would tell if the two did not belong together.

  Args:
    remote: the file.
    folder: to put it into; made if it does not exist.
    client: how to fetch.

  Returns:
    Where it is.

  Raises:
    slim.errors.DataError: it cannot be had, does not fit its checksum, another
      process fetches it, or there is no space. A file with another checksum
      that was there before stays as it is.
  """
  path = folder / remote.name
  part = folder / f'{remote.name}.part'
  try:
    if path.is_file():
      _check(path, remote, client)
      return path
    folder.mkdir(parents=True, exist_ok=True)
    with open(part, 'ab') as file:
      # For this process alone.
      if not disk.lock(file):
        raise errors.DataError(
          f'{part}: expected a file that no other process fetches; received '
          'one that is being fetched. Wait for it.'
        )
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
      f'{path}: expected a folder that can be written and has space; received '
      f'"{error}". Free some and run this again: it continues.'
    ) from error
  return path


def check_space(
  folder: pathlib.Path,
  remotes: abc.Iterable[Remote],
  client: Client,
  further: abc.Callable[[int], int] = lambda total: 0,
) -> None:
  """Refuses to begin what the disk cannot hold.

  Args:
    folder: that will hold the files.
    remotes: the files; those that are there already need no space.
    client: how to ask for their sizes.
    further: says for the size of all files what else will be written.

  Raises:
    slim.errors.DataError: not enough is free, or a size cannot be had.
  """
  total = missing = 0
  for remote in remotes:
    path = folder / remote.name
    size = path.stat().st_size if path.is_file() else _size(remote, client)
    total += size
    if not path.is_file():
      part = folder / f'{remote.name}.part'
      missing += size - (part.stat().st_size if part.is_file() else 0)
  needed = missing + further(total)
  there = next(p for p in (folder, *folder.resolve().parents) if p.is_dir())
  free = shutil.disk_usage(there).free
  if free < needed:
    raise errors.DataError(
      f'{folder}: expected {needed:,} bytes of free space for the files and '
      f'the shards; received {free:,}. Free some, or choose another folder.'
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
    except _PASSING as error:
      if getattr(error, 'errno', None) == errno.ENOSPC:
        raise
      reason = str(error)
    failures = failures + 1 if file.tell() <= before else 1
    if failures >= client.attempts:
      raise _refused(remote, reason)
    logging.info(
      '%s: %s; going on at byte %d.', remote.url, reason, file.tell()
    )
    client.pause(2.0**failures)


def _fetch_more(remote: Remote, file: BinaryIO, client: Client) -> bool:
  """Makes one request; returns whether the file is whole now."""
  start = file.tell()
  headers = {'Range': f'bytes={start}-'} if start else {}
  try:
    response = _open(remote, client, headers)
  except urllib.error.HTTPError as error:
    if error.code != 416:
      raise
    error.close()
    # It ends where our part ends, or is another file.
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
      while piece := response.read(_READ_TOGETHER):
        file.write(piece)
        file.flush()
        bar.update(len(piece))
  return total is None or file.tell() == total


def _empty(file: BinaryIO) -> None:
  file.truncate(0)
  file.seek(0)


def _total(response: http.client.HTTPResponse, start: int) -> int | None:
  """Size of the whole file as the server says it; None where it does not."""
  if response.status == 206:
    found = re.fullmatch(
      r'bytes (\d+)-\d+/(\d+)', response.headers.get('Content-Range', '')
    )
    if not found or int(found[1]) != start:
      raise http.client.HTTPException('another part than the one asked for')
    return int(found[2])
  length = response.headers.get('Content-Length')
  return int(length) if length else None


def _size(remote: Remote, client: Client) -> int:
  try:
    with _open(remote, client, {}, 'HEAD') as response:
      return int(response.headers.get('Content-Length', 0))
  except _PASSING as error:
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
        f'{parts.scheme}. Give an address with https.'
      )
    secret = ':'.join(client.credentials).encode()
    # Unredirected: another host that the site points to does not get them.
    request.add_unredirected_header(
      'Authorization', f'Basic {base64.b64encode(secret).decode()}'
    )
  return urllib.request.urlopen(request, timeout=_SECONDS)


def _refused(remote: Remote, reason: str) -> errors.DataError:
  return errors.DataError(
    f'{remote.url}: expected a file to download; received "{reason}". Check '
    'the network and the credentials and run this again: it continues. Or '
    f'fetch {remote.name} by other means and put it into the folder.'
  )
