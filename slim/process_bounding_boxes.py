"""Starts `terngrad convert imagenet_boxes` under its older name."""

import os
import sys

if not __package__:
  # A script's folder is on sys.path, where `datasets` hides other packages.
  sys.path[0] = os.path.dirname(sys.path[0])

from terngrad.cli import main

run = main.starter(
  'convert', 'imagenet_boxes', name='process_bounding_boxes', module=__name__
)
