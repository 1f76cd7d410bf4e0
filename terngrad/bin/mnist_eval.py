"""Starts `terngrad eval mnist`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('eval', 'mnist', name='mnist_eval')

if __name__ == '__main__':
  sys.exit(run())
