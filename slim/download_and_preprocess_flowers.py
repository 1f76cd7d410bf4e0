"""Starts `terngrad convert flowers`, by its older name."""

import pathlib
import sys

if __package__ in (None, ''):
  # Started by its path: Python then searches this folder, where a package
  # `datasets` would hide others of that name, and not the one above it.
  sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from terngrad.cli import main

run = main.starter('convert', 'flowers', name='download_and_preprocess_flowers')

if __name__ == '__main__':
  sys.exit(run())
