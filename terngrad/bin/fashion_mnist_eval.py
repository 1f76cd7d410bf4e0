"""Starts `terngrad eval fashion_mnist`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('eval', 'fashion_mnist', name='fashion_mnist_eval')

if __name__ == '__main__':
  sys.exit(run())
