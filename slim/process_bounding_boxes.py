"""Starts `terngrad convert imagenet_boxes`, by its older name."""

import os
import sys

if not __package__:
  # Started by its path, in a folder whose `datasets` would hide others.
  sys.path[0] = os.path.dirname(sys.path[0])

from terngrad.cli import main

run = main.starter(
  'convert', 'imagenet_boxes', name='process_bounding_boxes', module=__name__
)
