"""Checks of HTML pages that hold names of other people's files."""

import html.parser
import pathlib

from terngrad.report.pages import html_page

_ASSETS = pathlib.Path(html_page.__file__).parent
# What a script or a style loads something with.
_LOADERS = ('fetch(', 'import(', '@import', 'url(', 'XMLHttp', 'innerHTML')
# Attributes through which a page may load something or run code.
_LOADING = ('src', 'href', 'xlink:href', 'action', 'data', 'srcset', 'style')


class _Parser(html.parser.HTMLParser):
  """Collects the scripts and the loaded addresses of a page."""

  def __init__(self):
    super().__init__()
    self.scripts, self.styles, self.loaded, self.handlers = [], [], [], []
    self.tags = set()
    self._inside = None

  def handle_starttag(self, tag, attrs):
    self.tags.add(tag)
    self._inside = tag
    if tag in ('script', 'style'):
      self.scripts += [''] if tag == 'script' else []
      self.styles += [''] if tag == 'style' else []
    self.loaded += [v for k, v in attrs if k in _LOADING]
    self.handlers += [k for k, _ in attrs if k.startswith('on')]

  def handle_endtag(self, tag):
    self._inside = None

  def handle_data(self, data):
    if self._inside == 'script':
      self.scripts[-1] += data
    if self._inside == 'style':
      self.styles[-1] += data


def check_self_contained(text):
  """Fails unless a page has our script and style only, and loads nothing."""
  parser = _Parser()
  parser.feed(text)
  parser.close()
  script = (_ASSETS / 'page.js').read_text(encoding='utf-8')
  style = (_ASSETS / 'page.css').read_text(encoding='utf-8')
  assert [one.strip() for one in parser.scripts] == [script.strip()]
  assert [one.strip() for one in parser.styles] == [style.strip()]
  assert all(each.startswith('data:image/png;') for each in parser.loaded)
  assert not parser.handlers
  assert not parser.tags & {'link', 'iframe', 'object', 'embed', 'base', 'form'}
  for asset in (script, style):
    assert not any(word in asset for word in _LOADERS)
