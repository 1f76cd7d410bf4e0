"""Starts `terngrad distributed_train imagenet`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'distributed_train',
  'imagenet',
  name='imagenet_distributed_train',
  module=__name__,
)
