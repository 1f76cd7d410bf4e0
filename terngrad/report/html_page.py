"""Pages of one HTML file, which need nothing else."""

from typing import Any

import jinja2

# What every page is made of; a page fills the blocks. `table` draws a table of
# rows of text below its heads.
_BASE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title><style>
body { font: 14px/1.4 sans-serif; margin: 2em auto; max-width: 1280px;
  padding: 0 2em; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { border: 1px solid #ccc; padding: 2px 8px; text-align: left; }
{% block style %}{% endblock %}
</style></head><body>
<h1>{{ title }}</h1>
{% block body %}{% endblock %}
</body></html>
"""
_TABLES = """\
{% macro table(heads, rows) %}
<table><thead><tr>
{%- for head in heads %}<th>{{ head }}</th>{% endfor -%}
</tr></thead><tbody>
{% for row in rows %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table>
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
  """A whole page.

  Args:
    template: of Jinja; it extends `base` and fills its blocks `style` and
      `body`; `table` is imported from `tables`.
    title: text, also its heading.
    **values: what the template names. It is escaped, but for what the template
      says is `safe`: the project's own HTML, such as an SVG.

  Returns:
    HTML.
  """
  return _ENVIRONMENT.from_string(template).render(title=title, **values)
