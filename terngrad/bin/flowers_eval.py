"""Starts `terngrad eval flowers`, by its older name."""

from terngrad.cli import main

run = main.starter('eval', 'flowers', name='flowers_eval', module=__name__)
