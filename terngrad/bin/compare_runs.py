"""Starts `terngrad report compare`, by its older name."""

from terngrad.cli import main

run = main.starter('report', 'compare', name='compare_runs', module=__name__)
