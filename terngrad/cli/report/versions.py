"""Prints the versions that must agree between tasks, and this host's GPUs."""

import dataclasses
import platform

from terngrad import lazy
from terngrad import version
from terngrad.cli import command

tf = lazy.module('tensorflow')

USAGE = """\
{program}: prints versions and GPUs; all hosts need the same versions.

  {program}

`terngrad launch --config=FILE --check` compares this line of every host. The
GPUs are those that CUDA_VISIBLE_DEVICES makes visible.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportVersionsFlags:
  """The command has no flags."""


def act(values: ReportVersionsFlags) -> None:
  """Prints one line with versions and number of GPUs."""
  del values
  # Patch releases of Python do not change results.
  major, minor, _ = platform.python_version_tuple()
  gpus = len(tf.config.list_physical_devices('GPU'))
  command.say(
    f'terngrad {version.__version__}, TensorFlow {tf.__version__}, '
    f'Python {major}.{minor}; {gpus} GPUs'
  )


COMMAND = command.Command(USAGE, ReportVersionsFlags, act)
