"""The words that the project's prose does not use.

Documents, docstrings and comments use the field's words, in sentences that are
understood at the first reading. CONTRIBUTING.md explains how.
"""

import ast
import collections
import functools
import pathlib
import re
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What to say instead. A name of the code is in backticks.
BANNED = {
  'anew': 'again',
  'dealt': 'split, assigned',
  'deals': 'splits, assigns',
  'remembers': 'stores, keeps a state',
  'remembered': 'stored',
  'tells': 'reports, sends',
  'told': 'reported, sent',
  'whom': 'the noun',
}
# Names do not use these either.
BANNED_IN_NAMES = {
  *BANNED,
  'apart',
  'deal',
  'dealing',
  'remember',
  'tell',
  'telling',
  'who',
  'wish',
}
# The method of file objects, and a deprecated alias.
ALLOWED_NAMES = {'tell', 'told'}
_PART = re.compile(r'[A-Z]?[a-z]+|[A-Z]+(?![a-z])')
_WORD = re.compile(rf'\b({"|".join(BANNED)})\b', re.IGNORECASE)
# Code, links, quotations of commands, and names such as `exchange.told`.
_NOT_PROSE = re.compile(r'```.*?```|``.*?``|`[^`]*`|^ {4,}\S.*$', re.S | re.M)
# `tokenize` takes seconds for all modules.
_TEXT_OR_COMMENT = re.compile(
  r"'''(?:\\.|[^\\])*?'''|"
  r'''"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#[^\n]*''',
  re.S,
)
DOCUMENTS = [
  ROOT / 'README.md',
  ROOT / 'CONTRIBUTING.md',
  *sorted(ROOT.glob('docs/*.md')),
  *sorted(ROOT.glob('experiments/*/README.md')),
]
MODULES = [
  path
  for folder in ('terngrad', 'slim')
  for path in sorted((ROOT / folder).rglob('*.py'))
]


def name_of(path):
  return path.relative_to(ROOT).as_posix()


def found(text):
  """The banned words of a text, names of the code left out."""
  return sorted({word.lower() for word in _WORD.findall(text)})


class Texts(NamedTuple):
  """What a module says, without code in backticks."""

  docstrings: list
  comments: list
  names: set
  messages: list
  classes: list


def texts_of(source):
  """Reads a module once, for all tests."""
  nodes = [*ast.walk(ast.parse(source))]
  return Texts(
    [*docstrings(nodes)],
    [*comments(source)],
    {*names(nodes)},
    [*messages(nodes)],
    [node.name for node in nodes if isinstance(node, ast.ClassDef)],
  )


@functools.cache
def modules():
  """The texts of all modules by name."""
  return {
    name_of(path): texts_of(path.read_text(encoding='utf-8'))
    for path in MODULES
  }


def without_code(text):
  return re.sub(r'`[^`]*`', '', text)


def docstrings(nodes):
  """The docstrings of a module."""
  kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
  for node in nodes:
    if isinstance(node, kinds) and (text := ast.get_docstring(node)):
      # The name of an argument is not prose.
      yield re.sub(r'^ *\*{0,2}\w+:', '', without_code(text), flags=re.M)


def comments(source):
  """The comments of a module."""
  for token in _TEXT_OR_COMMENT.finditer(source):
    if token[0].startswith('#'):
      yield without_code(token[0])


def names(nodes):
  """The names that a module defines: functions, classes, arguments, values."""
  for node in nodes:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
      yield node.name
    elif isinstance(node, ast.arg):
      yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
      yield node.attr


def messages(nodes):
  """The texts of a module that are no docstrings."""
  prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
  for node in nodes:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
      # A text without a space is a key or a name.
      if id(node) not in prose and ' ' in node.value:
        yield without_code(node.value)


def banned_names(defined):
  """The names with a banned part."""
  return {
    name
    for name in defined
    if {part.lower() for part in _PART.findall(name)} & BANNED_IN_NAMES
  } - ALLOWED_NAMES


def test_documents_use_the_words_of_the_field():
  texts = {
    name_of(path): _NOT_PROSE.sub('', path.read_text(encoding='utf-8'))
    for path in DOCUMENTS
  }
  assert texts
  assert {
    name: found(text) for name, text in texts.items() if found(text)
  } == {}


def test_docstrings_and_comments_use_the_words_of_the_field():
  assert modules()
  wrong = {
    name: found('\n'.join([*texts.docstrings, *texts.comments]))
    for name, texts in modules().items()
  }
  assert {name: words for name, words in wrong.items() if words} == {}


@pytest.mark.parametrize(
  'text', ['Each worker is told the sum.', 'Begins anew.', 'Told in a row.']
)
def test_banned_words_are_found(text):
  assert found(text)
  texts = texts_of(f'def f():\n  """{text}"""\n  # {text}\n')
  assert len(texts.docstrings) == len(texts.comments) == 1
  assert all(found(one) for one in [*texts.docstrings, *texts.comments])


def test_names_use_the_words_of_the_field():
  wrong = {name: banned_names(texts.names) for name, texts in modules().items()}
  assert {name: words for name, words in wrong.items() if words} == {}


def test_messages_use_the_words_of_the_field():
  wrong = {
    name: found('\n'.join(texts.messages)) for name, texts in modules().items()
  }
  assert {name: words for name, words in wrong.items() if words} == {}


def test_banned_words_in_names_and_messages_are_found():
  source = "def tell_all(dealt):\n  raise ValueError(f'who was told {dealt}')\n"
  texts = texts_of(source)
  assert texts.names == {'tell_all', 'dealt'} == banned_names(texts.names)
  assert found(' '.join(texts.messages)) == ['told']


def test_classes_of_different_modules_have_different_names():
  classes = collections.defaultdict(set)
  for module, texts in modules().items():
    for name in texts.classes:
      classes[name].add(module)
  assert classes
  assert {k: sorted(v) for k, v in classes.items() if len(v) > 1} == {}
