"""Reads and writes files like config_dist.sh.

The files are data in bash syntax: each variable is a word or a list of words.
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
_WORD = re.compile(f'(?:{_PIECE.pattern})+', re.ASCII)
_BEGIN = re.compile(r'([A-Z_]+)=')
_CONTROL = re.compile(r'[\x00-\x1f\x7f]')
_SPACES = ' \t\n\v\f\r'


def read(
  path: str, lists: Sequence[str], words: Sequence[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
  """Reads the variables of a file: `lists` of words and single `words`.

  Raises:
    terngrad.errors.ConfigError: there is no such file, it cannot be parsed, or
      it lacks a variable or has another one.
  """
  if not (os.path.isfile(path) and os.access(path, os.R_OK)):
    raise refusals.refusal(
      'no configuration',
      'a file like scripts/config_dist.sh',
      path,
      'give --config=FILE',
    )
  text = pathlib.Path(path).read_bytes().decode(errors='surrogateescape')
  found = _Reader(path, lists, words).read(text)
  return {n: tuple(found[n]) for n in lists}, {n: found[n][0] for n in words}


def write(lists: Mapping[str, Sequence[str]], words: Mapping[str, str]) -> str:
  """Formats the text of a file that `read` accepts."""
  lines = []
  for name, items in lists.items():
    quoted = ''.join(f'  {_quoted(word)}\n' for word in items)
    lines.append(f'{name}=(\n{quoted})\n')
  lines += [f'{name}={_quoted(word)}\n' for name, word in words.items()]
  return ''.join(lines)


def _quoted(word: str) -> str:
  return "'" + word.replace("'", "'\"'\"'") + "'"


class _Reader:
  """Reads the text of a file, word by word."""

  def __init__(
    self, path: str, lists: Sequence[str], words: Sequence[str]
  ) -> None:
    self._path = path
    self._known = {'list': lists, 'word': words}
    self._found: dict[str, list[str]] = {}
    # Name of the list that is not closed yet, or ''.
    self._open = ''
    self._line = self._rest = ''
    self._number = 0

  def read(self, text: str) -> dict[str, list[str]]:
    """Parses the text; returns the words of each variable."""
    for self._number, self._line in enumerate(text.split('\n'), 1):
      self._rest = self._line.lstrip(_SPACES)
      while self._rest and not self._rest.startswith('#'):
        if not self._open:
          self._begin_variable()
        elif self._rest.startswith(')'):
          self._rest, self._open = self._rest[1:], ''
        else:
          self._found[self._open].append(self._take_word())
        self._rest = self._rest.lstrip(_SPACES)
    if self._open:
      raise self._refusal(f'a ) that ends {self._open}', 'none', 'add it')
    for name in (*self._known['list'], *self._known['word']):
      if name not in self._found:
        raise self._refusal(
          name, 'nothing', 'copy the line from scripts/config_dist.sh'
        )
    return self._found

  def _begin_variable(self) -> None:
    """Parses NAME=word, or NAME=( of a list."""
    begin = _BEGIN.match(self._rest)
    if not begin:
      raise self._refusal(
        'NAME=word or NAME=(word ...)',
        self._current_line(),
        'compare with scripts/config_dist.sh',
      )
    name = begin[1]
    self._rest = self._rest[begin.end() :]
    if name in self._found:
      raise self._refusal(
        'every variable once',
        f'line {self._number}: {name} again',
        'remove one of the two',
      )
    is_list = self._rest.startswith('(')
    kind, other = ('list', 'a word') if is_list else ('word', 'a list, (...)')
    if name not in self._known[kind]:
      raise self._refusal(
        f'a {kind} only for {" ".join(self._known[kind])}',
        self._current_line(),
        f'write {other}, or another name',
      )
    self._found[name] = []
    if is_list:
      self._rest, self._open = self._rest[1:], name
    else:
      self._found[name].append(self._take_word())

  def _take_word(self) -> str:
    """Parses a word; returns it without its quotes."""
    found = _WORD.match(self._rest)
    if not found:
      raise self._refusal(
        'a word, in quotes if it has special characters',
        self._current_line(),
        'write it in single quotes',
      )
    word = ''.join(map(''.join, _PIECE.findall(found[0])))
    self._rest = self._rest[found.end() :]
    if self._rest and self._rest[0] not in f'{_SPACES})':
      raise self._refusal(
        'a space after a word',
        self._current_line(),
        'write the whole word in single quotes',
      )
    if _CONTROL.search(word):
      raise self._refusal(
        'words without control characters',
        f'line {self._number}',
        'remove these characters',
      )
    return word

  def _current_line(self) -> str:
    return f'line {self._number}: {self._line}'

  def _refusal(
    self, expected: str, received: str, remedy: str
  ) -> errors.ConfigError:
    return refusals.refusal(
      f'cannot use {self._path}', expected, received, remedy
    )
