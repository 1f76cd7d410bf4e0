"""Starts `terngrad report net`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('report', 'net', name='net_summary')

if __name__ == '__main__':
  sys.exit(run())
