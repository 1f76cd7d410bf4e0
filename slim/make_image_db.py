"""Starts `terngrad convert database`, by its older name."""

import os
import sys

if not __package__:
  # Started by its path, in a folder whose `datasets` would hide others.
  sys.path[0] = os.path.dirname(sys.path[0])

from terngrad.cli import main

run = main.starter('convert', 'database', name='make_image_db', module=__name__)
