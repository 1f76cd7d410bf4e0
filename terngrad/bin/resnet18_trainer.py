"""Starts `terngrad train resnet18`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'train', 'resnet18', name='resnet18_trainer', module=__name__
)
