"""Starts `terngrad train resnet18`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('train', 'resnet18', name='resnet18_trainer')

if __name__ == '__main__':
  sys.exit(run())
