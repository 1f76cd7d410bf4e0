"""Starts `terngrad eval images`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('eval', 'images', name='image_eval')

if __name__ == '__main__':
  sys.exit(run())
