"""Errors whose messages are for the user.

Every message says what was expected, what was received, and what to do.
"""

import difflib
import json
import os
import shlex
from collections import abc
from importlib import metadata
from typing import Any
from urllib import parse

_MAX_LISTED = 20  # names in a message


class DataError(ValueError):
  """Data, or a request for data, that cannot be used."""


class UnknownNameError(DataError):
  """A name that is not in the table of choices."""


def refusal(
  subject: Any, expected: str, received: Any, remedy: str
) -> DataError:
  """Returns an error with expected value, received value and remedy.

  Args:
    subject: the object that cannot be used: a file, a folder, a flag.
    expected: what is valid.
    received: what was found.
    remedy: what to do, a sentence.
  """
  return DataError(
    f'{subject}: expected {expected}; received {received}. {remedy}'
  )


def lookup(table: abc.Mapping[str, Any], name: str, kind: str) -> Any:
  """Returns the entry of a table with a given name.

  Args:
    table: choices by name.
    name: the requested name.
    kind: the kind of entries, for the message: 'net', 'data set'.

  Raises:
    UnknownNameError: the name is unknown. The message lists the known names
      and suggests the nearest.
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
  """Returns the known name nearest to a word, or None if none is near."""
  found = difflib.get_close_matches(str(word), list(known), n=1)
  return found[0] if found else None


def did_you_mean(
  word: Any, known: abc.Iterable[str], otherwise: str = ''
) -> str:
  """Returns the end of a message: ' Did you mean ...?', or `otherwise`."""
  near = nearest(word, known)
  return f' Did you mean {near!r}?' if near else otherwise


def install_command(extra: str) -> str:
  """Returns the command that adds an extra to this installation of terngrad.

  It names the folder or the address from which pip installed terngrad.

  References:
    Recording the direct URL origin, https://peps.python.org/pep-0610.
  """
  try:
    stored = metadata.distribution('terngrad').read_text('direct_url.json')
    origin = json.loads(stored or '{}')
  except (metadata.PackageNotFoundError, OSError, ValueError):
    origin = {}
  url = origin.get('url', '')
  folder = parse.unquote(parse.urlparse(url).path)
  wanted, option = f'terngrad[{extra}]', ''
  if 'vcs_info' in origin:
    source = origin['vcs_info']
    revision = source.get('requested_revision') or source['commit_id']
    wanted += f' @ {source["vcs"]}+{url}@{revision}'
  elif 'dir_info' not in origin:
    wanted += f' @ {url}' if url else ''
  elif os.path.isdir(folder):
    wanted = f'{folder}[{extra}]'
    option = '-e ' if origin['dir_info'].get('editable') else ''
  return f'pip install {option}{shlex.quote(wanted)}'


def listed(names: abc.Iterable[str]) -> str:
  """Lists the first 20 names for a message: 'ape, bee and 3 more'."""
  known = list(names)
  shown = ', '.join(known[:_MAX_LISTED])
  more = len(known) - _MAX_LISTED
  return f'{shown} and {more} more' if more > 0 else shown
