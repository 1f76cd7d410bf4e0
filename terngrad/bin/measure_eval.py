"""Starts `terngrad measure eval`, by its older name."""

from terngrad.cli import main

run = main.starter('measure', 'eval', name='measure_eval', module=__name__)
