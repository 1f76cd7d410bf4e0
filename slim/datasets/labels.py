"""Reads `labels.txt`, in either of the two formats of 2017."""

import functools
import os
import pathlib
import re
from collections import abc

from slim import errors

_refused = functools.partial(
  errors.refusal,
  expected='a line <label>:<name>, or a name, for each class',
  remedy='Correct it, or remove it and pass the number of classes.',
)

FILE_NAME = 'labels.txt'

_MAX_BYTES = 2**24
_NUMBERED = re.compile(r'([0-9]{1,9}):(.*)')


def read(
  data_dir: str | os.PathLike[str],
  *,
  first_label: int,
  names: abc.Collection[str] = (),
) -> dict[int, str] | None:
  """Reads `<data_dir>/labels.txt`.

  Either every line is `<label>:<name>`, as slim's converters write it, or
  every line is a name, as the flowers script and build_image_data use. A byte
  order mark is ignored.

  Args:
    data_dir: folder of a data set.
    first_label: label of the first line if lines are names; 1 if label 0 is
      the background.
    names: names that classes may have. If every line is one of them, lines are
      names, even such as 16:9.

  Returns:
    Name by label, at least one; None if the file does not exist.

  Raises:
    slim.errors.DataError: the file cannot be read, or has neither format.
  """
  path = pathlib.Path(data_dir) / FILE_NAME
  try:
    with open(path, encoding='utf-8-sig') as file:
      content = file.read(_MAX_BYTES + 1)
  except FileNotFoundError:
    return None
  except (OSError, UnicodeDecodeError) as error:
    raise _refused(path, received=f'"{error}"') from error
  lines = [line.strip() for line in content.splitlines() if line.strip()]
  if not lines or len(content) > _MAX_BYTES:
    raise _refused(
      path,
      received='no line' if not lines else f'more than {_MAX_BYTES} characters',
    )
  found = [_NUMBERED.fullmatch(line) for line in lines]
  if not any(found) or set(names).issuperset(lines):
    return dict(enumerate(lines, first_label))
  labels = {}
  for line, match in zip(lines, found, strict=True):
    if not match or int(match[1]) in labels:
      raise _refused(
        path,
        received=f'the line {line[:60]!r}, with no label or a repeated one',
      )
    labels[int(match[1])] = match[2]
  return labels


def listed(labels: abc.Mapping[int, str]) -> str:
  """Lists the first classes for a message: '0:ape, 1:bee and 3 more'."""
  lines = [f'{label}:{name}' for label, name in sorted(labels.items())]
  return errors.listed(lines) or 'none'
