"""Starts `terngrad measure eval`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('measure', 'eval', name='measure_eval')

if __name__ == '__main__':
  sys.exit(run())
