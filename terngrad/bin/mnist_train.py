"""Starts `terngrad train mnist`, by its older name."""

from terngrad.cli import main

run = main.starter('train', 'mnist', name='mnist_train', module=__name__)
