"""Starts `terngrad eval imagenet`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('eval', 'imagenet', name='imagenet_eval')

if __name__ == '__main__':
  sys.exit(run())
