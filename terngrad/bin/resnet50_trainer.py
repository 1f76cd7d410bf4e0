"""Starts `terngrad train resnet50`, by its older name."""

from terngrad.cli import main

run = main.starter(
  'train', 'resnet50', name='resnet50_trainer', module=__name__
)
