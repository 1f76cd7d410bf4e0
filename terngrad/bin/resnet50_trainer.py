"""Starts `terngrad train resnet50`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('train', 'resnet50', name='resnet50_trainer')

if __name__ == '__main__':
  sys.exit(run())
