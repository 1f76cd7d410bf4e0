"""Self-contained HTML pages.

A page has one style sheet and one script of this package, and loads nothing.
The script only adds to a page that is complete without it.
"""

import functools
import pathlib
from typing import Any

import jinja2
import markupsafe

Markup = markupsafe.Markup

# The base of every page; a page fills its blocks. The macro `table` draws rows
# of text below a heading row.
_BASE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>{{ title }}</title>
<style>
{{ style }}</style></head><body>
<h1>{{ title }}</h1>
{% block body %}{% endblock %}
<script>
{{ script }}</script></body></html>
"""
_TABLES = """\
{% macro table(heads, rows) %}
<div class="wide"><table class="sortable"><thead><tr>
{%- for head in heads %}<th>{{ head }}</th>{% endfor -%}
</tr></thead><tbody>
{% for row in rows %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% endmacro %}
"""
_ENVIRONMENT = jinja2.Environment(
  loader=jinja2.DictLoader({'base': _BASE, 'tables': _TABLES}),
  autoescape=True,
  undefined=jinja2.StrictUndefined,
  trim_blocks=True,
  lstrip_blocks=True,
  keep_trailing_newline=True,
)


def render(template: str, title: str, **values: Any) -> str:
  """Renders a complete page.

  Args:
    template: Jinja template; it extends `base`, fills the block `body`, and may
      import `table` from `tables`.
    title: plain text, used as title and heading.
    **values: values that the template uses. They are escaped, except for those
      of the type `Markup`, which `fragment` returns.

  Returns:
    HTML.
  """
  return _ENVIRONMENT.from_string(template).render(
    title=title, style=_asset('page.css'), script=_asset('page.js'), **values
  )


def fragment(template: str, **values: Any) -> Markup:
  """Renders a part of a page; values are escaped as in `render`."""
  return Markup(_compiled(template).render(**values))


@functools.cache
def _compiled(template: str) -> jinja2.Template:
  return _ENVIRONMENT.from_string(template)


@functools.cache
def _asset(name: str) -> Markup:
  """Reads a file of this package, to be written into a page as it is."""
  path = pathlib.Path(__file__).with_name(name)
  return Markup(path.read_text(encoding='utf-8'))
