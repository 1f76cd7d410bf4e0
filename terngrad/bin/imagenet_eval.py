"""Starts `terngrad eval imagenet`, by its older name."""

from terngrad.cli import main

run = main.starter('eval', 'imagenet', name='imagenet_eval', module=__name__)
