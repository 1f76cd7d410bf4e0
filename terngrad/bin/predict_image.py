"""Starts `terngrad predict`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('predict', name='predict_image')

if __name__ == '__main__':
  sys.exit(run())
