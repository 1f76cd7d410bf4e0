"""Starts `terngrad measure codec`, by its older name."""

from terngrad.cli import main

run = main.starter('measure', 'codec', name='measure_codec', module=__name__)
