"""Starts `terngrad measure codec`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('measure', 'codec', name='measure_codec')

if __name__ == '__main__':
  sys.exit(run())
