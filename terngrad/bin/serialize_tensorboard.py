"""Starts `terngrad report tensorboard`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'report', 'tensorboard', name='serialize_tensorboard', module=__name__
)
