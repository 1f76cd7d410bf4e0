"""The command line: `terngrad` and its commands."""

import importlib.util
import sys

if importlib.util.find_spec('absl') is None:
  sys.stderr.write(
    'error: expected a Python with the packages of terngrad, received '
    f'{sys.executable} without absl. Activate the environment that has them: '
    'source .venv/bin/activate; scripts/setup.sh makes one.\n'
  )
  raise SystemExit(2)
