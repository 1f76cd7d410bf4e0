"""Starts `terngrad train images`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('train', 'images', name='image_train')

if __name__ == '__main__':
  sys.exit(run())
