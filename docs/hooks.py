"""Generates parts of the site from the code and from the experiments.

mkdocs calls the hooks when it builds the site. They replace the marks
`<!-- commands -->`, `<!-- house -->` and `<!-- sweeps -->` of pages, and render
the pages of sweeps from their tables.
"""

import ast
import html
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from slim.datasets.records import disk
from terngrad.cli import commands
from terngrad.cli import sweep

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Of `experiments/write_tables.py`.
_TABLE_MARK = re.compile(r'<!-- (table: .*?|end of table) -->\n')
_WIDTH, _FLOOR, _GAP = 1000, 74, 8
_STYLE = (
  '<style>.house rect{fill:none;stroke:currentColor}.house text{fill:'
  'currentColor;font:11px sans-serif}.house .name{font-weight:bold;'
  'font-size:13px}</style>'
)


def on_page_markdown(markdown, **known):
  """Replaces the marks of a page; mkdocs calls it for every page."""
  del known
  for mark, make in _MARKS.items():
    text = f'<!-- {mark} -->'
    if text in markdown:
      markdown = markdown.replace(text, make())
  # On the site the experiments are beside the documents.
  markdown = markdown.replace('](../experiments/', '](experiments/')
  return _TABLE_MARK.sub('', markdown)


def on_post_build(config: Mapping[str, Any], **known: Any) -> None:
  """Adds the pages of sweeps; mkdocs calls it after it wrote all pages."""
  del known
  for folder in swept():
    output = pathlib.Path(config['site_dir'], 'experiments', folder.name)
    # The folder exists if only changed pages are built (`--dirty`).
    output.mkdir(parents=True, exist_ok=True)
    disk.write_text(output / 'sweep.html', sweep.page(folder))


def swept() -> list[pathlib.Path]:
  """Folders of sweeps that have tables."""
  found = ROOT.glob('experiments/*/sweep.ini')
  folders = (path.parent for path in found)
  return sorted(f for f in folders if (f / 'sweep.csv').exists())


def sweep_list() -> str:
  """HTML links to the pages of sweeps, which are not pages of mkdocs."""
  items = [
    f'<li><a href="experiments/{folder.name}/sweep.html">'
    f'<code>experiments/{folder.name}</code></a></li>'
    for folder in swept()
  ]
  return f'<ul>{"".join(items)}</ul>'


def command_list():
  """A table with one row per command."""
  lines = ['| command | what it does |', '| --- | --- |']

  def add(members, above):
    for name, found in members.items():
      path = f'{above} {name}'
      if isinstance(found, commands.CommandGroup):
        add(found.members, path)
      else:
        lines.append(f'| `{path}` | {found.summary.replace("|", "/")} |')

  add(commands.COMMANDS, 'terngrad')
  return '\n'.join(lines)


def house():
  """SVG of the packages in layers: each imports only packages below it."""
  uses = imports()
  floors = {}
  for package in uses:
    floors.setdefault(_level(package, uses), []).append(package)
  height = len(floors) * (_FLOOR + _GAP)
  parts = [
    f'<svg class="house" viewBox="0 0 {_WIDTH} {height}" '
    f'xmlns="http://www.w3.org/2000/svg">{_STYLE}'
  ]
  for i, level in enumerate(sorted(floors, reverse=True)):
    rooms = sorted(floors[level])
    width = (_WIDTH - _GAP * (len(rooms) + 1)) / len(rooms)
    for j, package in enumerate(rooms):
      x, y = _GAP + j * (width + _GAP), i * (_FLOOR + _GAP)
      parts.append(_room(package, uses[package], x, y, width))
  return ''.join([*parts, '</svg>'])


def _room(package, uses, x, y, width):
  modules = sorted(_modules(package))
  lines = [f'{len(modules)} modules: {", ".join(p.stem for p in modules)}']
  if uses:
    lines.append(f'uses {", ".join(sorted(uses))}')
  letters = int(width / 5.6)
  shown = [
    line if len(line) < letters else f'{line[:letters]}…' for line in lines
  ]
  texts = [f'<text class="name" x="{x + 8}" y="{y + 20}">{package}</text>']
  texts += [
    f'<text x="{x + 8}" y="{y + 40 + 18 * i}">{html.escape(line)}</text>'
    for i, line in enumerate(shown)
  ]
  box = f'<rect x="{x}" y="{y}" width="{width}" height="{_FLOOR}" rx="4"/>'
  title = f'<title>{html.escape(" | ".join(lines))}</title>'
  return f'<g>{title}{box}{"".join(texts)}</g>'


def imports():
  """{package: set of packages that it imports}, with slim as one package."""
  packages = ['slim'] + [
    f'terngrad.{path.parent.name}'
    for path in ROOT.glob('terngrad/*/__init__.py')
  ]
  packages.remove('terngrad.bin')
  found = {}
  for package in packages:
    names = set().union(*map(_imported, _modules(package)))
    found[package] = {
      other
      for other in packages
      if other != package
      and any(f'{n}.'.startswith(f'{other}.') for n in names)
    }
  return found


def _modules(package):
  folder = ROOT / package.replace('.', '/')
  # Modules of slim itself only start commands of terngrad.
  pattern = '*/**/*.py' if package == 'slim' else '**/*.py'
  return [path for path in folder.glob(pattern) if path.stem != '__init__']


def _imported(path):
  """Names that a module imports, directly or by `lazy.module`."""
  names = set()
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.ImportFrom) and node.module:
      names |= {f'{node.module}.{alias.name}' for alias in node.names}
    elif isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.Call) and _is_lazy(node.func):
      names.add(ast.literal_eval(node.args[0]))
  return names


def _is_lazy(function):
  """Whether a node is `lazy.module`."""
  is_module = isinstance(function, ast.Attribute) and function.attr == 'module'
  return is_module and ast.unparse(function) == 'lazy.module'


def _level(package, uses):
  return 1 + max((_level(other, uses) for other in uses[package]), default=0)


_MARKS = {'commands': command_list, 'house': house, 'sweeps': sweep_list}
