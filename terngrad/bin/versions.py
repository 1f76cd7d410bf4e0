"""Starts `terngrad report versions`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('report', 'versions', name='versions')

if __name__ == '__main__':
  sys.exit(run())
