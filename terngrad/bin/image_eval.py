"""Starts `terngrad eval images`, by its older name."""

from terngrad.cli import main

run = main.starter('eval', 'images', name='image_eval', module=__name__)
