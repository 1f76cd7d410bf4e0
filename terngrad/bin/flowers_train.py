"""Starts `terngrad train flowers`, by its older name."""

from terngrad.cli import main

run = main.starter('train', 'flowers', name='flowers_train', module=__name__)
