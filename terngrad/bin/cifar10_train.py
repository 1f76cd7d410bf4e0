"""Starts `terngrad train cifar10`, by its older name."""

from terngrad.cli import main

run = main.starter('train', 'cifar10', name='cifar10_train', module=__name__)
