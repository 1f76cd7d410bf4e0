"""Starts slim's programs as their users do."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(program, *arguments, folder, environment=None):
  """Runs `python -m slim.<program>`; returns the finished process."""
  return subprocess.run(
    [sys.executable, '-m', f'slim.{program}', *map(str, arguments)],
    cwd=folder,
    env={**os.environ, 'PYTHONPATH': str(ROOT), **(environment or {})},
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
