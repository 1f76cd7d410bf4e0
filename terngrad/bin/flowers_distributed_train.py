"""Starts `terngrad distributed_train flowers`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'distributed_train',
  'flowers',
  name='flowers_distributed_train',
  module=__name__,
)
