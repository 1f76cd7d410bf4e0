"""The trackers of experiments that a run can log to, by name.

A tracker receives the numbers that `metrics.jsonl` holds, under the same names
and steps. TensorBoard is in the list of names, but its events are written by
`terngrad.training.records`.
"""

import importlib.util
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import Protocol

from slim import errors as data_errors
from terngrad import errors

TENSORBOARD = 'tensorboard'
# Modules with `find_active` and `start`; each package is an extra of setup.py.
MODULES = {
  'wandb': 'terngrad.tracking.wandb_tracker',
  'mlflow': 'terngrad.tracking.mlflow_tracker',
}
NAMES = (TENSORBOARD, *MODULES)
_EXTRAS = {TENSORBOARD: 'trainers', 'wandb': 'wandb', 'mlflow': 'mlflow'}

# What a tracker needs to continue a run, such as its id.
Identity = dict[str, str]


class TrackedRun(NamedTuple):
  """A run as a tracker sees it.

  Attributes:
    folder: path of the run's folder.
    options: its options by name, which a tracker shows beside the metrics.
    identity: what `Tracker.identity` was when this folder's run began; {} for a
      new run.
    active: id of a run that the program itself began, which is continued and
      not ended; '' for none.
  """

  folder: str
  options: Mapping[str, object]
  identity: Identity
  active: str = ''

  @property
  def name(self) -> str:
    """The folder's last two names, as 'ternary/train'."""
    return '/'.join(self.folder.rstrip('/').split('/')[-2:])


class Tracker(Protocol):
  """A run in a tracker. Its methods may raise anything.

  Attributes:
    identity: what continues this run later.
  """

  identity: Identity

  def log(self, step: int, values: Mapping[str, float]) -> None:
    """Logs numbers of one step. Steps never decrease."""

  def close(self, failed: bool) -> None:
    """Ends the run, and sends what was not sent yet."""


def check(log_to: Sequence[str], name: str = 'log_to') -> None:
  """Refuses names of trackers that are unknown or occur twice.

  Args:
    log_to: names of `NAMES`.
    name: the option, which begins the message.

  Raises:
    errors.ConfigError: a name is not in `NAMES`, or occurs twice.
  """
  for tracker in log_to:
    if tracker not in NAMES or log_to.count(tracker) > 1:
      near = () if tracker in NAMES else NAMES
      hint = data_errors.did_you_mean(
        tracker, near, ' Separate several by commas.'
      )
      raise errors.ConfigError(
        f'{name}: expected names of {", ".join(NAMES)}, each at most once, '
        f'received {",".join(log_to)}.{hint}'
      )


def check_installed(log_to: Sequence[str], name: str = 'log_to') -> None:
  """Raises `errors.ConfigError` if the package of a tracker is missing."""
  for tracker in log_to:
    found = importlib.util.find_spec(tracker)
    # A folder of this name, such as that of wandb's files, has no origin.
    if found is None or found.origin is None:
      raise errors.ConfigError(
        f'{name}: expected the package {tracker}, received none. Install it: '
        f'{data_errors.install_command(_EXTRAS[tracker])}.'
      )
