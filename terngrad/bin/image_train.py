"""Starts `terngrad train images`, by its older name."""

from terngrad.cli import main

run = main.starter('train', 'images', name='image_train', module=__name__)
