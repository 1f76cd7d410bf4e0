"""Starts `terngrad eval mnist`, by its older name."""

from terngrad.cli import main

run = main.starter('eval', 'mnist', name='mnist_eval', module=__name__)
