"""Starts `terngrad distributed_train mnist`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('distributed_train', 'mnist', name='mnist_distributed_train')

if __name__ == '__main__':
  sys.exit(run())
