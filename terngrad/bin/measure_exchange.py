"""Starts `terngrad measure exchange`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'measure', 'exchange', name='measure_exchange', module=__name__
)
