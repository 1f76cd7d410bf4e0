"""The parts of the check of a GPU, in order."""

import pkgutil
from collections.abc import Callable
from typing import NamedTuple
from typing import cast

from terngrad.measure.gpu import figures

# Seconds of all parts.
TOTAL = 360.0


class CheckSettings(NamedTuple):
  """What a part checks, and how much of it.

  Attributes:
    device: full name of the device, such as '/GPU:0'.
    small: True for sizes that a CPU manages in seconds.
  """

  device: str
  small: bool

  @property
  def has_limits(self) -> bool:
    """Whether the limits of speed apply: they are for GPUs, at full size."""
    return self.device.startswith('/GPU') and not self.small


class CheckPart(NamedTuple):
  """A part of the check.

  Attributes:
    summary: one line that says what it checks.
    seconds: time limit, with the start of TensorFlow, if earlier parts used
      all of theirs.
    location: `module:name` of the function that takes the settings and a
      `figures.Report`.
  """

  summary: str
  seconds: float
  location: str

  def run(self, settings: CheckSettings, report: figures.Report) -> None:
    """Runs the part in this process."""
    found = pkgutil.resolve_name(self.location)
    cast(Callable[[CheckSettings, figures.Report], None], found)(
      settings, report
    )


_HERE = 'terngrad.measure.gpu'
PARTS = {
  'device': CheckPart(
    'the device, its memory and its launches', 25, f'{_HERE}.hardware:check'
  ),
  'words': CheckPart(
    'words and decoded gradients of all codes, compared with the CPU',
    65,
    f'{_HERE}.words:check',
  ),
  'repeat': CheckPart(
    'a run twice, with deterministic operations',
    40,
    f'{_HERE}.repeats:check',
  ),
  'alexnet': CheckPart(
    'steps of AlexNet', 50, f'{_HERE}.training:check_alexnet'
  ),
  'transformer': CheckPart(
    'steps of a transformer of 25 million parameters',
    40,
    f'{_HERE}.training:check_transformer',
  ),
  'resnet50': CheckPart(
    'steps of ResNet-50', 90, f'{_HERE}.training:check_resnet50'
  ),
  'codec': CheckPart(
    'codes, relative to a copy in the memory of the device',
    50,
    f'{_HERE}.coding:check',
  ),
}
