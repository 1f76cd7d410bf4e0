"""Starts `terngrad train imagenet`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('train', 'imagenet', name='imagenet_train')

if __name__ == '__main__':
  sys.exit(run())
