"""Starts `terngrad measure step`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('measure', 'step', name='measure_step')

if __name__ == '__main__':
  sys.exit(run())
