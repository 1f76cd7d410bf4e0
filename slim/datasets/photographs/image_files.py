"""Reads image files; errors name the file."""

import concurrent.futures
import os
import pathlib
from collections import abc
from typing import TypeVar

from slim import errors
from slim.datasets.photographs import images
from slim.datasets.records import progress
from slim.datasets.records import shard_writer

_Made = TypeVar('_Made')


def read(
  path: str | bytes | os.PathLike[str], make: abc.Callable[[bytes], _Made]
) -> _Made:
  """Reads an image file and converts its content.

  Args:
    path: path of the file.
    make: a function of `images`, such as `images.to_decodable`; takes the
      content of the file.

  Raises:
    slim.errors.DataError: the file cannot be read, is too large for an image,
      or is not an image.
  """
  try:
    return make(_content(path))
  except (OSError, images.ImageError) as error:
    name = os.fsencode(path).decode(errors='replace')
    raise errors.DataError(
      f'{name}: {error}. Give an image file that can be read, or move it away.'
    ) from error


def unreadable(
  paths: abc.Sequence[pathlib.Path],
) -> dict[int, shard_writer.Unreadable]:
  """Finds the files that are not images by decoding all files.

  Returns:
    Name and reason of each unreadable file, by its index in `paths`.
  """

  def check(path: pathlib.Path) -> shard_writer.Unreadable | None:
    try:
      images.to_stored(_content(path))
    except (OSError, images.ImageError) as error:
      return shard_writer.Unreadable(str(path), str(error))
    return None

  # Decoding runs outside Python's global interpreter lock.
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    found = progress.Progress(
      pool.map(check, paths), total=len(paths), unit=' images checked'
    )
    return {i: problem for i, problem in enumerate(found) if problem}


def _content(path: str | bytes | os.PathLike[str]) -> bytes:
  with open(path, 'rb') as file:
    images.check_bytes(os.fstat(file.fileno()).st_size)
    return file.read(images.MAX_BYTES)
