"""Starts `terngrad report page`, by its older name."""

from terngrad.cli import main

run = main.starter('report', 'page', name='run_page', module=__name__)
