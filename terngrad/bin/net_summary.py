"""Starts `terngrad report net`, by its older name."""

from terngrad.cli import main

run = main.starter('report', 'net', name='net_summary', module=__name__)
