"""Starts `terngrad report gradients`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('report', 'gradients', name='dump_gradients')

if __name__ == '__main__':
  sys.exit(run())
