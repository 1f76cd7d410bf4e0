"""Starts `terngrad train fashion_mnist`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('train', 'fashion_mnist', name='fashion_mnist_train')

if __name__ == '__main__':
  sys.exit(run())
