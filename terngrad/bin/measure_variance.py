"""Starts `terngrad measure variance`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'measure', 'variance', name='measure_variance', module=__name__
)
