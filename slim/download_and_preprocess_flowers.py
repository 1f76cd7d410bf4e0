"""Starts `terngrad convert flowers` under its older name."""

import os
import sys

if not __package__:
  # A script's folder is on sys.path, where `datasets` hides other packages.
  sys.path[0] = os.path.dirname(sys.path[0])

from terngrad.cli import main

run = main.starter(
  'convert', 'flowers', name='download_and_preprocess_flowers', module=__name__
)
