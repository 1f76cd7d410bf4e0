"""Checks names of classes that become lines of `labels.txt`."""

import collections
import unicodedata
from collections import abc


def find_problem(name: str) -> str:
  """Returns why a name cannot be a line of the file; '' if it can.

  Args:
    name: name of a class, as Python decodes file names.
  """
  # Bytes that are not UTF-8 become surrogates, which cannot be encoded.
  if name.encode(errors='replace').decode() != name:
    return 'it is not UTF-8'
  if name.splitlines() not in ([name], []):
    return 'it has a line end'
  control = [c for c in name if unicodedata.category(c) == 'Cc' and c != '\t']
  if control:
    return f'it has the control character {control[0]!r}'
  if name != name.rstrip():
    return 'it ends with a space, which readers of labels.txt strip'
  return ''


def repeated(names: abc.Sequence[str]) -> list[str]:
  """Returns the names that occur more than once, sorted."""
  counts = collections.Counter(names)
  return sorted(name for name, count in counts.items() if count > 1)
