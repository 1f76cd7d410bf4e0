"""Pages of one HTML file, which need nothing else."""

import html

_STYLE = """
body { font: 14px/1.4 sans-serif; margin: 2em auto; max-width: 1280px;
  padding: 0 2em; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { border: 1px solid #ccc; padding: 2px 8px; text-align: left; }
"""


def document(title, parts, style=''):
  """A whole page.

  Args:
    title: text, also its heading.
    parts: list of HTML, its body.
    style: CSS that is added to that of all pages.

  Returns:
    str, HTML.
  """
  head = html.escape(title)
  return '\n'.join(
    [
      '<!DOCTYPE html>',
      f'<html lang="en"><head><meta charset="utf-8"><title>{head}</title>'
      f'<style>{_STYLE}{style}</style></head><body>',
      f'<h1>{head}</h1>',
      *parts,
      '</body></html>',
      '',
    ]
  )
