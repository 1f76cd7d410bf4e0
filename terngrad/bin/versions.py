"""Prints what the tasks of a run must have in common, and this host's GPUs."""

import dataclasses
import platform
import sys

import tensorflow as tf

from terngrad import version
from terngrad.program import main

USAGE = """\
versions: prints the versions that the hosts of a run must share, and its GPUs.

  versions

scripts/run_dist.sh --check compares the line of every host. GPUs are those that
CUDA_VISIBLE_DEVICES leaves.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """There are none."""


def act(values):
  """Prints the line; returns the exit code."""
  del values
  # Patch releases of Python change no result.
  major, minor, _ = platform.python_version_tuple()
  gpus = len(tf.config.list_physical_devices('GPU'))
  main.say(
    f'terngrad {version.__version__}, TensorFlow {tf.__version__}, '
    f'Python {major}.{minor}; {gpus} GPUs'
  )
  return main.DONE


def run():
  """Runs the program; returns the exit code."""
  return main.run(Flags, USAGE, {}, act)


if __name__ == '__main__':
  sys.exit(run())
