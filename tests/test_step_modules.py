"""A step, on towers and over servers, stays short enough to follow."""

import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
_ROOT = pathlib.Path(__file__).resolve().parents[1]


def counted(*words):
  """(modules, lines of code) that the program says."""
  done = subprocess.run(
    [sys.executable, '-m', 'tests.step_modules', *words],
    capture_output=True,
    text=True,
    check=True,
    cwd=_ROOT,
  )
  lines, modules = re.search(
    r'(\d+)  lines in (\d+) modules\n$', done.stdout
  ).groups()
  return int(modules), int(lines)


def test_a_step_on_towers_is_in_28_modules_of_3280_lines():
  modules, lines = counted()
  # 22 and 2,500 until issue 49, whose signatures say types and whose methods,
  # passes and optimizers are classes. Its aim, not yet met, is 18 and 2,000.
  assert modules <= 28
  assert lines <= 3280


def test_a_step_over_servers_is_in_five_modules_more():
  modules, _ = counted('--servers')
  # Three until issue 18: words of variable length are pushed at their length.
  # Four until issue 49: what makes a packing also takes those of 0.2.
  assert modules <= 5
