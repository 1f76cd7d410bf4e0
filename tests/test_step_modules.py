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


def test_a_step_on_towers_is_in_39_modules_of_4400_lines():
  modules, lines = counted()
  # 22 and 2,500 before signatures had types, with a parameter on each line, and
  # before methods, passes and optimizers were classes. 18 and 2,000 are wanted.
  # Then came float32 words, workers of several devices, sums without messages,
  # programs that parts share, steps that XLA compiles as a whole, and the
  # deprecated names of 0.2, which go in 0.4.
  assert modules <= 39
  assert lines <= 4400


def test_a_step_over_servers_adds_five_modules():
  modules, _ = counted('--servers')
  # The fourth pushes words of variable length at their length. The fifth also
  # takes packings of 0.2.
  assert modules <= 5
