"""Parts of the documentation site that are generated from the code."""

import importlib.util
import pathlib
import re
import xml.etree.ElementTree

import pytest

from terngrad.cli import commands
from terngrad.cli import sweep

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope='module')
def hooks():
  spec = importlib.util.spec_from_file_location('hooks', ROOT / 'docs/hooks.py')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


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
