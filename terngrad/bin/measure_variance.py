"""Starts `terngrad measure variance`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('measure', 'variance', name='measure_variance')

if __name__ == '__main__':
  sys.exit(run())
