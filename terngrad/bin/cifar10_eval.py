"""Starts `terngrad eval cifar10`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('eval', 'cifar10', name='cifar10_eval')

if __name__ == '__main__':
  sys.exit(run())
