"""The command line: `terngrad` and its commands."""

import importlib.util
import sys

if importlib.util.find_spec('absl') is None:
  sys.stderr.write(
    'error: expected a Python with the packages of terngrad, received '
    f'{sys.executable} without absl. Use that of the environment in which it '
    'is installed: source .venv/bin/activate; scripts/setup.sh makes one.\n'
  )
  raise SystemExit(2)
