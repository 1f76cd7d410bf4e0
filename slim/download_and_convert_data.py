"""Starts `terngrad convert dataset` under its older name."""

import os
import sys

if not __package__:
  # A script's folder is on sys.path, where `datasets` hides other packages.
  sys.path[0] = os.path.dirname(sys.path[0])

from terngrad.cli import main

run = main.starter(
  'convert', 'dataset', name='download_and_convert_data', module=__name__
)
