"""Starts `terngrad convert imagenet_validation`, by its older name."""

import os
import sys

if not __package__:
  # Started by its path, in a folder whose `datasets` would hide others.
  sys.path[0] = os.path.dirname(sys.path[0])

from terngrad.cli import main

run = main.starter(
  'convert',
  'imagenet_validation',
  name='preprocess_imagenet_validation_data',
  module=__name__,
)
