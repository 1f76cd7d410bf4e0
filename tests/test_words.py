"""The words that the project's prose does not use.

Documents, docstrings and comments use the field's words, in sentences that are
understood at the first reading. CONTRIBUTING.md explains how.
"""

import ast
import collections
import io
import pathlib
import re
import tokenize

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


def docstrings(source):
  """The docstrings of a module, without code in backticks."""
  kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, kinds) and (text := ast.get_docstring(node)):
      # The name of an argument is not prose.
      yield re.sub(
        r'^ *\*{0,2}\w+:', '', re.sub(r'`[^`]*`', '', text), flags=re.M
      )


def comments(source):
  """The comments of a module."""
  for token in tokenize.generate_tokens(io.StringIO(source).readline):
    if token.type == tokenize.COMMENT:
      yield re.sub(r'`[^`]*`', '', token.string)


def names(source):
  """The names that a module defines: functions, classes, arguments, values."""
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
      yield node.name
    elif isinstance(node, ast.arg):
      yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
      yield node.attr


def messages(source):
  """The texts of a module that are no docstrings, without code in backticks."""
  tree = ast.parse(source)
  prose = {
    id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
  }
  for node in ast.walk(tree):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
      # A text without a space is a key or a name.
      if id(node) not in prose and ' ' in node.value:
        yield re.sub(r'`[^`]*`', '', node.value)


@pytest.mark.parametrize('path', DOCUMENTS, ids=name_of)
def test_documents_use_the_words_of_the_field(path):
  text = _NOT_PROSE.sub('', path.read_text(encoding='utf-8'))
  assert found(text) == []


@pytest.mark.parametrize('path', MODULES, ids=name_of)
def test_docstrings_and_comments_use_the_words_of_the_field(path):
  source = path.read_text(encoding='utf-8')
  assert found('\n'.join([*docstrings(source), *comments(source)])) == []


@pytest.mark.parametrize(
  'text', ['Each worker is told the sum.', 'Begins anew.', 'Told in a row.']
)
def test_banned_words_are_found(text):
  assert found(text)
  source = f'def f():\n  """{text}"""\n  # {text}\n'
  assert all(found(one) for one in [*docstrings(source), *comments(source)])


@pytest.mark.parametrize('path', MODULES, ids=name_of)
def test_names_use_the_words_of_the_field(path):
  found_in = {
    name
    for name in names(path.read_text(encoding='utf-8'))
    if {part.lower() for part in _PART.findall(name)} & BANNED_IN_NAMES
  }
  assert found_in <= ALLOWED_NAMES


@pytest.mark.parametrize('path', MODULES, ids=name_of)
def test_messages_use_the_words_of_the_field(path):
  assert found('\n'.join(messages(path.read_text(encoding='utf-8')))) == []


def test_banned_words_in_names_and_messages_are_found():
  source = "def tell(dealt):\n  raise ValueError(f'who was told {dealt}')\n"
  assert {*names(source)} == {'tell', 'dealt'}
  assert found(' '.join(messages(source))) == ['told']


def test_classes_of_different_modules_have_different_names():
  modules = collections.defaultdict(set)
  for path in MODULES:
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
      if isinstance(node, ast.ClassDef):
        modules[node.name].add(name_of(path))
  assert modules
  assert {k: sorted(v) for k, v in modules.items() if len(v) > 1} == {}
