"""Parts of self-contained HTML pages: style, script, tables and plots."""
