"""Starts `terngrad report page`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('report', 'page', name='run_page')

if __name__ == '__main__':
  sys.exit(run())
