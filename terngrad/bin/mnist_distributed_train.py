"""Starts `terngrad distributed_train mnist`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'distributed_train', 'mnist', name='mnist_distributed_train', module=__name__
)
