"""Parts of the documentation site that are generated from the code."""

import functools
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

import pytest
import yaml

from terngrad.cli import commands
from terngrad.cli import sweep
from tests.report import browser

ROOT = pathlib.Path(__file__).resolve().parents[1]


def load(name):
  spec = importlib.util.spec_from_file_location(name, ROOT / f'docs/{name}.py')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


@pytest.fixture(scope='module')
def hooks():
  module = load('hooks')
  # It parses all modules.
  module.imports = functools.cache(module.imports)
  return module


@pytest.fixture(scope='module')
def experiments():
  return load('experiment_pages')


def test_every_command_is_a_row(hooks):
  shown = re.findall(r'^\| `terngrad ([\w ]+)` \| ', hooks.command_list(), re.M)
  for text in shown:
    assert isinstance(commands.find(tuple(text.split())), commands.Entry)
  assert {text.split()[0] for text in shown} == {*commands.COMMANDS}
  assert len(shown) == len({*shown}) > 40


def test_packages_are_drawn_above_their_imports(hooks):
  root = xml.etree.ElementTree.fromstring(hooks.house())
  heights = {
    room.find('{*}text').text: float(room.find('{*}rect').get('y'))
    for room in root.iter('{http://www.w3.org/2000/svg}g')
  }
  uses = hooks.imports()
  assert {*heights} == {*uses} >= {'slim', 'terngrad.native', 'terngrad.cli'}
  for package, others in uses.items():
    for other in others:
      assert heights[package] < heights[other], (package, other)


def test_marks_in_pages_are_replaced(hooks):
  for path in ROOT.glob('docs/**/*.md'):
    text = path.read_text(encoding='utf-8')
    assert '<!--' not in hooks.on_page_markdown(text, page=None), path
  assert '<!-- house -->' in (ROOT / 'docs/architecture.md').read_text()


def test_every_page_is_in_the_navigation(hooks):
  del hooks
  listed = (ROOT / 'mkdocs.yml').read_text(encoding='utf-8')
  for path in ROOT.glob('docs/**/*.md'):
    assert f'- {path.relative_to(ROOT / "docs")}\n' in listed


def test_every_sweep_with_results_has_a_page(hooks, tmp_path, monkeypatch):
  everything = hooks.swept()
  assert len(everything) > 5
  links = re.findall(r'href="([^"]+)"', hooks.sweep_list())
  one = next(f for f in everything if f.name == 'lenet_staleness')
  monkeypatch.setattr(hooks, 'swept', lambda: [one])
  hooks.on_post_build({'site_dir': str(tmp_path)})
  # As `mkdocs build --dirty` does.
  hooks.on_post_build({'site_dir': str(tmp_path)})
  (page,) = tmp_path.glob('**/sweep.html')
  assert page.relative_to(tmp_path).as_posix() in links
  assert len(links) == len(everything)


def test_a_page_of_the_site_equals_the_report_and_is_the_only_file(
  hooks, tmp_path, monkeypatch
):
  one = next(f for f in hooks.swept() if f.name == 'lenet_staleness')
  monkeypatch.setattr(hooks, 'swept', lambda: [one])
  hooks.on_post_build({'site_dir': str(tmp_path / 'site')})
  written = [p for p in (tmp_path / 'site').rglob('*') if p.is_file()]
  assert [p.name for p in written] == ['sweep.html']
  sweep.render(one, tmp_path)
  assert written[0].read_text() == (tmp_path / 'sweep.html').read_text()


def test_every_experiment_is_a_page_of_the_navigation(experiments):
  config = {'nav': ['index.md']}
  assert experiments.on_config(config) is config
  first, added = config['nav']
  assert first == 'index.md'
  assert added['Experiments'] == [
    path.relative_to(ROOT).as_posix()
    for path in sorted(ROOT.glob('experiments/**/README.md'))
  ]
  assert len(added['Experiments']) > 20


def test_links_of_experiments_lead_to_pages_and_files_of_the_site(experiments):
  folders = [folder.name for folder in experiments.folders()]
  for folder in experiments.folders():
    text = experiments.page(folder)
    files = [path.name for path in experiments.linked(folder, text)]
    for target in re.findall(r'\]\(([^):#]+)(?:#[^)]*)?\)', text):
      if target.startswith('../../'):
        assert (ROOT / 'docs' / target.removeprefix('../../')).is_file()
      elif target.endswith('/README.md'):
        found = target.removeprefix('../').removesuffix('/README.md')
        assert found in folders
      else:
        assert target in files, (folder, target)


def test_experiments_with_a_sweep_link_to_its_page(hooks, experiments):
  swept = {folder.name for folder in hooks.swept()}
  for folder in experiments.folders():
    text = experiments.page(folder)
    assert ('<a href="sweep.html">' in text) == (folder.name in swept)
    assert '](sweep.md)' not in text


def test_the_search_index_is_a_script_too(experiments, tmp_path):
  (tmp_path / 'search').mkdir()
  config = {'site_dir': str(tmp_path)}
  experiments.on_post_build(config)
  assert not list((tmp_path / 'search').iterdir())
  (tmp_path / 'search/search_index.json').write_text('{"docs": []}')
  experiments.on_post_build(config)
  script = (tmp_path / 'search/search_index.js').read_text()
  assert script == 'var __index = {"docs": []};\n'


@pytest.mark.slow
@pytest.mark.skipif(not browser.PROGRAM, reason='needs chromium on the path')
def test_the_search_of_the_site_works_from_disk(tmp_path):
  settings = yaml.safe_load((ROOT / 'mkdocs.yml').read_text(encoding='utf-8'))
  docs = tmp_path / 'docs'
  (docs / 'javascripts').mkdir(parents=True)
  (docs / 'index.md').write_text('# First\n\nNothing here.\n')
  (docs / 'other.md').write_text('# Second\n\nA word, gradientish.\n')
  for name in settings['extra']['polyfills']:
    shutil.copy(ROOT / 'docs' / name, docs / name)
  # Without the API's pages, which take most of the time.
  settings |= {'plugins': ['search'], 'nav': ['index.md', 'other.md']}
  settings['hooks'] = [str(ROOT / 'docs/experiment_pages.py')]
  settings |= {'docs_dir': str(docs), 'site_dir': str(tmp_path / 'site')}
  (tmp_path / 'mkdocs.yml').write_text(yaml.safe_dump(settings))
  subprocess.run(
    [sys.executable, '-m', 'mkdocs', 'build', '--quiet'],
    cwd=tmp_path,
    env=os.environ | {'NO_MKDOCS_2_WARNING': '1', 'PYTHONPATH': str(ROOT)},
    check=True,
  )
  address = (tmp_path / 'site/index.html').as_uri()
  text = browser.dump(f'{address}?q=gradientish', tmp_path / 'profile')
  (found,) = re.findall(r'md-search-result__meta">([^<]*)', text)
  assert found == '1 matching document'


def test_the_page_of_codes_begins_with_its_contents():
  text = (ROOT / 'docs/codecs.md').read_text(encoding='utf-8')
  before, *after = re.split('^## ', text, flags=re.M)
  listed = re.findall(r'\[([^\]]+)\]\(#([\w-]+)\)', before)
  assert [name for name, _ in listed] == [each.split('\n')[0] for each in after]
  for name, anchor in listed:
    assert anchor == name.lower().replace(' ', '-')


def test_sections_of_docstrings_are_lists():
  settings = yaml.safe_load((ROOT / 'mkdocs.yml').read_text(encoding='utf-8'))
  (found,) = (p for p in settings['plugins'] if 'mkdocstrings' in p)
  options = found['mkdocstrings']['handlers']['python']['options']
  # A table has a column of types, which docstrings leave to the signatures.
  assert options['docstring_section_style'] == 'list'
