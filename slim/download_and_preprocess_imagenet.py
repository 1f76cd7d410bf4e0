"""Starts `terngrad convert download_imagenet`, by its older name."""

import os
import sys

if not __package__:
  # Started by its path: Python then searches this folder, where a package
  # `datasets` would hide others of that name, and not the one above it.
  sys.path[0] = os.path.dirname(sys.path[0])

from terngrad.cli import main

run = main.starter(
  'convert',
  'download_imagenet',
  name='download_and_preprocess_imagenet',
  module=__name__,
)
