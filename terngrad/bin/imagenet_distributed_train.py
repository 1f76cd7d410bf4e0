"""Starts `terngrad distributed_train imagenet`, by its older name."""

import sys

from terngrad.cli import main

run = main.starter(
  'distributed_train', 'imagenet', name='imagenet_distributed_train'
)

if __name__ == '__main__':
  sys.exit(run())
