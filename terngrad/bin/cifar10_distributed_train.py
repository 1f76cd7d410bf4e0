"""Starts `terngrad distributed_train cifar10`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'distributed_train',
  'cifar10',
  name='cifar10_distributed_train',
  module=__name__,
)
