"""Starts `terngrad report compare`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('report', 'compare', name='compare_runs')

if __name__ == '__main__':
  sys.exit(run())
