"""Starts `terngrad train flowers`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('train', 'flowers', name='flowers_train')

if __name__ == '__main__':
  sys.exit(run())
