"""Starts `terngrad report gradients`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'report', 'gradients', name='dump_gradients', module=__name__
)
