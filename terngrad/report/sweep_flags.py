"""What the flags of a sweep's runs have in common, and virtual nodes."""

import shlex
from collections.abc import Sequence


def is_virtual(flags: str) -> bool:
  """Returns whether several nodes of a run shared a device.

  Seconds of such a run do not measure speed: one device did the work of all.

  Args:
    flags: flags of the run, as in results.csv. Processes that `launch` started
      are no virtual nodes.
  """
  words = _words(flags)
  if words[:1] == ['launch']:
    return False
  values = {
    name: value
    for name, equals, value in (word.partition('=') for word in words)
    if equals
  }
  devices = values.get('--devices', '')
  number = len(devices.split(',')) if devices else values.get('--num_gpus', '1')
  try:
    return int(values.get('--num_nodes', '-1')) > int(number)
  except ValueError:
    return False


def divide(flags: Sequence[str]) -> tuple[str, list[str]]:
  """Divides the flags of runs into those of all and those of some.

  Returns:
    The flags that every run has, and for each run its other flags.
  """
  words = [_words(text) for text in flags]
  first = words[0] if words else []
  common = [word for word in first if all(word in one for one in words)]
  others = [[word for word in one if word not in common] for one in words]
  return shlex.join(common), [shlex.join(one) for one in others]


def _words(flags: str) -> list[str]:
  """Splits flags; text that is no command line is one word."""
  try:
    return shlex.split(flags)
  except ValueError:
    return [flags]
