"""Starts `terngrad distributed_train flowers`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter(
  'distributed_train', 'flowers', name='flowers_distributed_train'
)

if __name__ == '__main__':
  sys.exit(run())
