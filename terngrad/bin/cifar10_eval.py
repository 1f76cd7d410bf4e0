"""Starts `terngrad eval cifar10`, by its older name."""

from terngrad.cli import main

run = main.starter('eval', 'cifar10', name='cifar10_eval', module=__name__)
