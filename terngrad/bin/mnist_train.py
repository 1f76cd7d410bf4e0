"""Starts `terngrad train mnist`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('train', 'mnist', name='mnist_train')

if __name__ == '__main__':
  sys.exit(run())
