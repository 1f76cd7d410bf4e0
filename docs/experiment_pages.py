"""Adds the READMEs of experiments to the site, and an index for its search.

mkdocs calls the hooks when it builds the site. The READMEs are outside of
`docs`, with the tables and plots that they link to.
"""

import pathlib
import re
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File
from mkdocs.structure.files import Files

from slim.datasets.records import disk

ROOT = pathlib.Path(__file__).resolve().parents[1]
_LINK = re.compile(r'\]\(([^):#]+)(#[^)]*)?\)')
_TABLE = re.compile(r'\[([^\]]+)\]\(sweep\.md\)')


def folders() -> list[pathlib.Path]:
  """Returns the folders that have a README; the first is that of the list."""
  found = ROOT.glob('experiments/**/README.md')
  return sorted(path.parent for path in found)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
  """Lists the experiments in the navigation; mkdocs calls it first."""
  pages = [f'{_name(folder)}/README.md' for folder in folders()]
  config['nav'].append({'Experiments': pages})
  return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
  """Adds the READMEs and what they link to; mkdocs calls it before pages."""
  for folder in folders():
    text = page(folder)
    uri = f'{_name(folder)}/README.md'
    files.append(File.generated(config, uri, content=text))
    for path in linked(folder, text):
      uri = path.relative_to(ROOT).as_posix()
      files.append(File.generated(config, uri, abs_src_path=str(path)))
  return files


def page(folder: pathlib.Path) -> str:
  """Returns the Markdown of an experiment's page on the site.

  Links to documents are made relative to the site, and those to the table of a
  sweep lead to its HTML page.
  """
  text = (folder / 'README.md').read_text(encoding='utf-8')
  text = text.replace('](../../docs/', '](../../')
  text = _TABLE.sub(r'<a href="sweep.html">\1</a>', text)
  if (folder / 'sweep.csv').exists():
    text += (
      '\n<a href="sweep.html">The plots, the summary and all runs</a>, made '
      'from `results.csv`.\n'
    )
  return text


def linked(folder: pathlib.Path, text: str) -> Iterator[pathlib.Path]:
  """Yields the files, but not the pages, that a page links to in its folder."""
  names = dict.fromkeys(match[1] for match in _LINK.finditer(text))
  for name in names:
    path = folder / name
    if path.parent == folder and path.suffix != '.md' and path.is_file():
      yield path


def on_post_build(config: Mapping[str, Any], **known: Any) -> None:
  """Writes the search index as a script too, for pages opened from disk.

  A browser lets a page from disk run scripts of its folder, but not read files.
  """
  del known
  folder = pathlib.Path(config['site_dir'], 'search')
  index = folder / 'search_index.json'
  if index.exists():
    text = index.read_text(encoding='utf-8')
    disk.write_text(folder / 'search_index.js', f'var __index = {text};\n')


def _name(folder: pathlib.Path) -> str:
  return folder.relative_to(ROOT).as_posix()
