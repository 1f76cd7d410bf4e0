"""Reads and writes files like config_dist.sh.

They are data in the syntax of bash: variables that are words or lists of words.
Nothing in them is executed or expanded.
"""

import os
import pathlib
import re
from collections.abc import Mapping
from collections.abc import Sequence

from terngrad import errors
from terngrad.launching import refusals

# A piece of a word: in quotes of either kind, or without special characters.
_PIECE = re.compile(
  r"""'([^']*)'|"([^"]*)"|([^\]\s'"()#;&|<>`$\\*?{}\[]+)""", re.ASCII
)
_BEGIN = re.compile(r'([A-Z_]+)=')
_CONTROL = re.compile(r'[\x00-\x1f\x7f]')
_SPACES = ' \t\n\v\f\r'


def read(
  path: str, lists: Sequence[str], words: Sequence[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
  """Reads a file.

  Args:
    path: of the file.
    lists: names of the variables that are lists.
    words: names of the variables that are words.

  Returns:
    (dict of name to list, dict of name to word), of all names.

  Raises:
    terngrad.errors.ConfigError: there is no such file, or it holds something
      else, or not all of these.
  """
  if not (os.path.isfile(path) and os.access(path, os.R_OK)):
    raise refusals.refusal(
      'no configuration',
      'a file like scripts/config_dist.sh',
      path,
      'give --config=FILE',
    )
  text = pathlib.Path(path).read_bytes().decode(errors='surrogateescape')
  reader = _Reader(path, lists, words)
  reader.read(text)
  return {n: tuple(v) for n, v in reader.lists.items()}, reader.words


def write(lists: Mapping[str, Sequence[str]], words: Mapping[str, str]) -> str:
  """The text of a file, as `read` reads it."""
  lines = []
  for name, items in lists.items():
    quoted = ''.join(f'  {_quoted(word)}\n' for word in items)
    lines.append(f'{name}=(\n{quoted})\n')
  lines += [f'{name}={_quoted(word)}\n' for name, word in words.items()]
  return ''.join(lines)


def _quoted(word: str) -> str:
  return "'" + word.replace("'", "'\"'\"'") + "'"


class _Reader:
  """Reads the text of a file, word by word.

  Attributes:
    lists: dict of name to its words.
    words: dict of name to its word.
  """

  def __init__(
    self, path: str, lists: Sequence[str], words: Sequence[str]
  ) -> None:
    self._path = path
    self._known = {'list': lists, 'word': words}
    self.lists: dict[str, list[str]] = {}
    self.words: dict[str, str] = {}
    # The list whose ) has not come yet.
    self._open = ''
    self._line = self._rest = ''
    self._number = 0

  def read(self, text: str) -> None:
    for self._number, self._line in enumerate(text.split('\n'), 1):
      self._rest = self._line.lstrip(_SPACES)
      while self._rest and not self._rest.startswith('#'):
        if self._open:
          self._take_item()
        else:
          self._begin_variable()
        self._rest = self._rest.lstrip(_SPACES)
    if self._open:
      raise self._refusal(f'a ) that ends {self._open}', 'none', 'add it')
    for names in self._known.values():
      for name in names:
        if name not in self.lists and name not in self.words:
          raise self._refusal(
            name, 'nothing', 'take the line from scripts/config_dist.sh'
          )

  def _begin_variable(self) -> None:
    """Takes NAME=word, or NAME=( of a list."""
    found = _BEGIN.match(self._rest)
    if not found:
      raise self._refusal(
        'NAME=word or NAME=(word ...)',
        self._here(),
        'compare with scripts/config_dist.sh',
      )
    name = found[1]
    self._rest = self._rest[found.end() :]
    if name in self.lists or name in self.words:
      raise self._refusal(
        'every variable once',
        f'line {self._number}: {name} again',
        'leave one out',
      )
    if self._rest.startswith('('):
      self._check_name(name, 'list', 'write a word, or another name')
      self._rest = self._rest[1:]
      self._open, self.lists[name] = name, []
    else:
      self._check_name(name, 'word', 'write a list, (...), or another name')
      self.words[name] = self._take_word()

  def _check_name(self, name: str, kind: str, remedy: str) -> None:
    known = self._known[kind]
    if name not in known:
      raise self._refusal(
        f'a {kind} for one of {" ".join(known)}', self._here(), remedy
      )

  def _take_item(self) -> None:
    """Takes one word of the list that is open, or its end."""
    if self._rest.startswith(')'):
      self._rest, self._open = self._rest[1:], ''
    else:
      self.lists[self._open].append(self._take_word())

  def _take_word(self) -> str:
    """Takes a word; returns it without its quotes."""
    found = _PIECE.match(self._rest)
    if not found:
      raise self._refusal(
        'a word, in quotes where it has special characters',
        self._here(),
        'write it in single quotes',
      )
    word = ''
    while found:
      word += found[1] or found[2] or found[3] or ''
      self._rest = self._rest[found.end() :]
      found = _PIECE.match(self._rest)
    if self._rest and self._rest[0] not in f'{_SPACES})':
      raise self._refusal(
        'a space after a word',
        self._here(),
        'write the whole word in single quotes',
      )
    if _CONTROL.search(word):
      raise self._refusal(
        'words without control characters',
        f'line {self._number}',
        'write it again',
      )
    return word

  def _here(self) -> str:
    return f'line {self._number}: {self._line}'

  def _refusal(
    self, expected: str, received: str, remedy: str
  ) -> errors.ConfigError:
    return refusals.refusal(
      f'cannot use {self._path}', expected, received, remedy
    )
