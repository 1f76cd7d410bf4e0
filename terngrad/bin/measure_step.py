"""Starts `terngrad measure step`, by its older name."""

from terngrad.cli import main

run = main.starter('measure', 'step', name='measure_step', module=__name__)
