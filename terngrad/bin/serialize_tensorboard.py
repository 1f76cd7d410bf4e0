"""Starts `terngrad report tensorboard`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter('report', 'tensorboard', name='serialize_tensorboard')

if __name__ == '__main__':
  sys.exit(run())
