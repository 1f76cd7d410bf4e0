"""Every command in a document exists and accepts its flags; links lead on.

Commands are the lines of indented and fenced blocks, and the spans in
backquotes, that begin with a program's name. They are parsed as the program
parses them; nothing is run.
"""

import ast
import functools
import pathlib
import re
import shlex
from typing import NamedTuple

import pytest

from terngrad.cli import commands
from terngrad.cli import flags
from tests.cli import starters

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
  path.relative_to(ROOT).as_posix()
  for pattern in ('*.md', 'docs/*.md', 'experiments/**/README.md')
  for path in ROOT.glob(pattern)
  if path.name != 'CHANGELOG.md'
)
SPAN = re.compile(r'`([^`\n]+(?:\n[^`\n]+)?)`')
FENCE = re.compile(r'^```(\w*)\n(.*?)^```', re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r'^    +\S.*$', re.MULTILINE)
LINK = re.compile(r'\[[^\]]*\]\(([^)\s]+)\)')
HEADING = re.compile(r'^#+ +(.*?) *$', re.MULTILINE)
ENDS = {'|', '>', '>>', '&', '&&', ';', '...', '#', '\\'}
# Words that represent a number that the reader knows.
A_NUMBER = re.compile(r'=("?\$\w+"?|[INi])$')


class Shown(NamedTuple):
  """A command in a document.

  Attributes:
    text: the command as shown, joined to one line.
    words: its words, without environment variables, pipes and redirections.
  """

  text: str
  words: list[str]


def shown_in(document):
  """The `Shown` of a document's text."""
  plain = FENCE.sub('', document)
  blocks = [body for kind, body in FENCE.findall(document) if kind != 'python']
  blocks.append('\n'.join(INDENTED.findall(plain)))
  for block in blocks:
    for line in block.replace('\\\n', ' ').splitlines():
      yield from _shown(line)
  for span in SPAN.findall(INDENTED.sub('', plain)):
    yield from _shown(span)


def _shown(line):
  try:
    # What a reader fills in may be of several words.
    plain = re.sub(r'<[^<>]*>', 'FILLED_IN', line)
    words = shlex.split(plain.strip().removeprefix('$ '))
  except ValueError:
    return
  while words and re.fullmatch(r'[A-Z_]+=.*', words[0]):
    words.pop(0)
  # 'PROGRAM ARGUMENT; another' ends at its first part.
  for i, word in enumerate(words):
    if word in ENDS:
      words = words[:i]
      break
  if words and kind_of(words):
    yield Shown(' '.join(line.split()), words)


@functools.cache
def programs():
  """{program: module} of the starters, from setup.py."""
  tree = ast.parse((ROOT / 'setup.py').read_text(encoding='utf-8'))
  (names,) = (
    node.value
    for node in tree.body
    if isinstance(node, ast.Assign) and node.targets[0].id == 'PROGRAMS'
  )
  return {
    name: to.partition(':')[0] for name, to in ast.literal_eval(names).items()
  }


def kind_of(words):
  """'starter', 'command', 'script' or 'experiment', or '' of other text."""
  if words[0] == 'terngrad':
    return 'command' if len(words) > 1 else ''
  if words[0] in programs() or is_starter(module_of(words)):
    return 'starter'
  if words[0].endswith('.sh') and 'scripts/' in words[0]:
    return 'script'
  if re.match(r'(terngrad|slim|tests|experiments)\.', module_of(words)):
    return 'module'
  return ''


def module_of(words):
  """The module of `python -m MODULE` and `python PATH.py`, or ''."""
  if words[0] != 'python' or len(words) < 2:
    return ''
  if words[1] == '-m':
    return words[2] if len(words) > 2 else ''
  return words[1].removesuffix('.py').replace('/', '.')


def path_of(module):
  return ROOT / (module.replace('.', '/') + '.py')


def is_starter(module):
  """Whether a module starts a command by its older name."""
  path = path_of(module)
  return path.is_file() and 'main.starter(' in path.read_text(encoding='utf-8')


def read_flags(found, words):
  """Fails unless a `command.Command` reads such words."""
  if words and '--help' not in words:
    words = [A_NUMBER.sub('=1', word) for word in words if word[0] != '$']
    flags.parse(found.options, found.defaults, words, found.words, found.rest)


def check_starter(words):
  """The same for a program of an older name."""
  if words[0] == 'python':
    module, words = module_of(words), words[3 if words[1] == '-m' else 2 :]
  else:
    module, words = programs()[words[0]], words[1:]
  read_flags(starters.command(module), words)


@functools.cache
def of_trainers():
  """What trainers say of their flags, which scripts hand on."""
  found = [commands.find(('train', name)) for name in ('slim', 'cifar10')]
  return ''.join(
    flags.help_text(command.options, command.defaults, '')
    for command in map(commands.load, found)
  )


def check_source(path, words):
  """Fails unless a script or module is there and knows all flags by name.

  Scripts may hand a trainer's on, by `"$@"`.
  """
  (path, *_) = [*path.parent.glob(path.name), None]
  assert path, 'there is no such file'
  source = path.read_text(encoding='utf-8')
  if '"$@"' in source:
    source += of_trainers()
  for word in words:
    if word == '--':
      break
    if word.startswith('--') and word != '--help':
      name = word[2:].partition('=')[0]
      assert re.search(rf'(--|[\'"]){name}\b', source), word


def check(words):
  """Fails unless a shown command could be given."""
  kind = kind_of(words)
  if kind == 'starter':
    check_starter(words)
  elif kind == 'script':
    check_source(ROOT / words[0], words[1:])
  elif kind == 'module':
    check_source(path_of(module_of(words)), words[2:])
  else:
    path, rest = (), words[1:]
    while rest and not rest[0].startswith('-'):
      path, rest = (*path, rest[0]), rest[1:]
      found = commands.find(path)
      if isinstance(found, commands.Entry):
        read_flags(commands.load(found), rest)
        break


@pytest.mark.parametrize('name', DOCUMENTS)
def test_commands_exist_and_accept_their_flags(name, monkeypatch):
  # Where a reader gives them.
  monkeypatch.chdir(ROOT)
  wrong = []
  for shown in shown_in((ROOT / name).read_text(encoding='utf-8')):
    try:
      check(shown.words)
    except (AssertionError, KeyError, flags.UsageError) as error:
      wrong.append(f'{shown.text}: {error!r}')
  assert not wrong, '\n'.join(wrong)


def test_commands_are_found_in_blocks_and_in_text():
  document = """Give `mnist_train --net=lenet`, or

      $ CODE=1 ./scripts/test.sh --all \\
          tests/x.py   # slowly

```bash
terngrad train mnist --data_dir=D | tee log
python -m terngrad.bin.mnist_eval ...
```
```python
terngrad.compress(gradients)
```
"""
  assert [shown.words for shown in shown_in(document)] == [
    ['terngrad', 'train', 'mnist', '--data_dir=D'],
    ['python', '-m', 'terngrad.bin.mnist_eval'],
    ['./scripts/test.sh', '--all', 'tests/x.py'],
    ['mnist_train', '--net=lenet'],
  ]


@pytest.mark.parametrize(
  'line',
  [
    'mnist_train --not_a_flag=1',
    'terngrad train moon --steps=3',
    './scripts/test.sh --most',
    './scripts/missing.sh',
    'python -m terngrad.bin.cifar10_train --num_gpus=some',
    'python experiments/lenet_modes/run_modes.py --data_folder=D',
  ],
)
def test_invalid_commands_are_found(line):
  with pytest.raises((AssertionError, KeyError, flags.UsageError)):
    check(shlex.split(line))


def without_code(path):
  return SPAN.sub('', FENCE.sub('', path.read_text(encoding='utf-8')))


def links_of(path):
  """The relative links of a document: (as written, path, anchor)."""
  for link in LINK.findall(without_code(path)):
    if '://' not in link and not link.startswith('mailto:'):
      to, _, anchor = link.partition('#')
      yield link, (path.parent / to if to else path).resolve(), anchor


def anchors_of(path):
  """The anchors of a document's headings, as sites make them."""
  text = FENCE.sub('', path.read_text(encoding='utf-8'))
  return {
    re.sub(r'[-\s]+', '-', re.sub(r'[^\w\s-]', '', heading).strip().lower())
    for heading in HEADING.findall(text)
  }


def is_broken(path, anchor):
  if path.suffix == '.md' and path.is_file():
    return bool(anchor) and anchor not in anchors_of(path)
  return not path.exists()


@pytest.mark.parametrize('name', DOCUMENTS)
def test_relative_links_lead_to_files_and_headings(name):
  links = links_of(ROOT / name)
  assert not [link for link, to, anchor in links if is_broken(to, anchor)]


def test_broken_links_are_found(tmp_path):
  page = tmp_path / 'page.md'
  page.write_text(
    '# One `word`\n[a](missing.md) `[b](in_code.md)` [c](#one-word) [d](#two)\n'
    '[e](page.md#one-word) [f](page.md#no) [g](https://a.b/c) ![h](no.svg)\n'
  )
  broken = [link for link, *rest in links_of(page) if is_broken(*rest)]
  assert broken == ['missing.md', '#two', 'page.md#no', 'no.svg']


def test_the_readme_leads_to_every_page():
  found, following = set(), [ROOT / 'README.md']
  while following:
    page = following.pop()
    if page not in found and page.suffix == '.md':
      found.add(page)
      following += [to for _, to, _ in links_of(page) if to.is_file()]
  pages = {*(ROOT / 'docs').glob('*.md')}
  # The first page of the site repeats the README.
  assert pages - found == {ROOT / 'docs/index.md'}


def test_the_site_lists_every_page():
  listed = re.findall(
    r'^ *- ([\w/]+\.md)$', (ROOT / 'mkdocs.yml').read_text(), re.MULTILINE
  )
  pages = (ROOT / 'docs').rglob('*.md')
  assert sorted(listed) == sorted(
    page.relative_to(ROOT / 'docs').as_posix() for page in pages
  )
