"""Starts `terngrad eval fashion_mnist`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'eval', 'fashion_mnist', name='fashion_mnist_eval', module=__name__
)
