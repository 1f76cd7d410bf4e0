"""Starts `terngrad train imagenet`, by its older name."""

from terngrad.cli import main

run = main.starter('train', 'imagenet', name='imagenet_train', module=__name__)
