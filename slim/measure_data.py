"""Starts `terngrad measure data`, by its older name."""

import os
import sys

if not __package__:
  # Started by its path, in a folder whose `datasets` would hide others.
  sys.path[0] = os.path.dirname(sys.path[0])

from terngrad.cli import main

run = main.starter('measure', 'data', name='measure_data', module=__name__)
