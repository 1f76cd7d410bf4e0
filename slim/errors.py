"""Errors meant for the person at the keyboard.

Every message says what was expected, what was received, and what to do.
"""

import difflib
from collections import abc
from typing import Any

_MOST_LISTED = 20  # names in a message


class DataError(ValueError):
  """Data, or a request for data, cannot be used as it is."""


class UnknownNameError(DataError):
  """A name that is in no table of what can be chosen."""


def refusal(place: Any, expected: str, received: Any, remedy: str) -> DataError:
  """The error for something that cannot be used as it is.

  Args:
    place: what it is: a file, a folder, a flag.
    expected: what would do.
    received: what is there.
    remedy: what to do, a sentence.
  """
  return DataError(
    f'{place}: expected {expected}; received {received}. {remedy}'
  )


def lookup(table: abc.Mapping[str, Any], name: str, kind: str) -> Any:
  """Chooses by name from an explicit table.

  Args:
    table: what can be chosen, by name.
    name: the wanted entry.
    kind: what the entries are, for the message: 'net', 'data set'.

  Returns:
    table[name].

  Raises:
    UnknownNameError: no such entry; names those that exist and the nearest.
  """
  if name in table:
    return table[name]
  known = ', '.join(sorted(table))
  near = nearest(name, table)
  hint = f'did you mean {near!r}?' if near else 'use one of these names.'
  raise UnknownNameError(
    f'Unknown {kind}: expected one of {known}; received {name!r}; {hint}'
  )


def nearest(word: Any, known: abc.Iterable[str]) -> str | None:
  """The name that a word may be meant for, or None where none is near."""
  found = difflib.get_close_matches(str(word), list(known), n=1)
  return found[0] if found else None


def did_you_mean(
  word: Any, known: abc.Iterable[str], otherwise: str = ''
) -> str:
  """What a message ends with: ' Did you mean ...?', or `otherwise`."""
  near = nearest(word, known)
  return f' Did you mean {near!r}?' if near else otherwise


def listed(names: abc.Iterable[str]) -> str:
  """The first names for a message: 'ape, bee and 3 more'."""
  known = list(names)
  shown = ', '.join(known[:_MOST_LISTED])
  more = len(known) - _MOST_LISTED
  return f'{shown} and {more} more' if more > 0 else shown
