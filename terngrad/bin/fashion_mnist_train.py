"""Starts `terngrad train fashion_mnist`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'train', 'fashion_mnist', name='fashion_mnist_train', module=__name__
)
