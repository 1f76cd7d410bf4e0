"""Starts `terngrad measure exchange`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('measure', 'exchange', name='measure_exchange')

if __name__ == '__main__':
  sys.exit(run())
