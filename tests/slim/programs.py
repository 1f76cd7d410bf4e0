"""Starts slim's programs as their users do."""

import os
import pathlib

from tests import forked

ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(program, *arguments, folder, environment=None):
  """Runs `python -m slim.<program>`; returns the finished process."""
  variables = {**os.environ, 'PYTHONPATH': str(ROOT), **(environment or {})}
  return forked.run(
    f'slim.{program}', *arguments, folder=folder, environment=variables
  )
