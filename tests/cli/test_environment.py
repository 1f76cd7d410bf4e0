"""Programs that are started by a Python without the packages."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_a_python_without_the_packages_is_refused_with_a_remedy():
  done = subprocess.run(
    # Neither the environment's packages nor the user's.
    [sys.executable, '-S', '-m', 'terngrad.bin.mnist_train', '--help'],
    env={'PATH': os.environ['PATH'], 'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 2
  (line,) = done.stderr.splitlines()
  assert line.startswith('error: expected a Python with the packages')
  assert 'source .venv/bin/activate' in line
