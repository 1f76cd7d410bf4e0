"""Self-contained HTML pages."""

from typing import Any

import jinja2

# The base of every page; a page fills its blocks. The macro `table` draws rows
# of text below a heading row.
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
  """Renders a complete page.

  Args:
    template: Jinja template; it extends `base`, fills the blocks `style` and
      `body`, and may import `table` from `tables`.
    title: plain text, used as title and heading.
    **values: values that the template uses. They are escaped unless the
      template marks them `safe`: the project's HTML, such as an SVG.

  Returns:
    HTML.
  """
  return _ENVIRONMENT.from_string(template).render(title=title, **values)
