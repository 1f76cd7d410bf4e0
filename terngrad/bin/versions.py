"""Starts `terngrad report versions`, by its older name."""

from terngrad.cli import main

run = main.starter('report', 'versions', name='versions', module=__name__)
