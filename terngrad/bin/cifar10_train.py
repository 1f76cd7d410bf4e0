"""Starts `terngrad train cifar10`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('train', 'cifar10', name='cifar10_train')

if __name__ == '__main__':
  sys.exit(run())
