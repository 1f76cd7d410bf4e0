"""Starts `terngrad eval flowers`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('eval', 'flowers', name='flowers_eval')

if __name__ == '__main__':
  sys.exit(run())
