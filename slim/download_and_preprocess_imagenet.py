"""Starts `terngrad convert download_imagenet`, by its older name."""

import os
import sys

if not __package__:
  # Started by its path, in a folder whose `datasets` would hide others.
  sys.path[0] = os.path.dirname(sys.path[0])

from terngrad.cli import main

run = main.starter(
  'convert',
  'download_imagenet',
  name='download_and_preprocess_imagenet',
  module=__name__,
)
