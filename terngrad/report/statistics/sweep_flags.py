"""What the flags of a sweep's runs say: nodes, local steps, learning rates."""

import re
import shlex
from collections.abc import Sequence

from terngrad.recipes import catalog

_SCHEDULE = ('--decay_adam', '--num_epochs_per_decay')
_FLAG_FILE = '--flagfile'
_DASHES = re.compile('--?(?=[A-Za-z_])')


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
  values = _values(words)
  devices = values.get('--devices', '')
  number = len(devices.split(',')) if devices else values.get('--num_gpus', '1')
  if _FLAG_FILE in values:
    return True  # Rows of version 0.2 do not have what is in the file.
  try:
    return int(values.get('--num_nodes', '-1')) > int(number)
  except ValueError:
    return False


def local_steps(flags: str) -> tuple[int, int]:
  """Returns the local steps between two exchanges of a parameter, and parts.

  The parts are those in which the model is exchanged, one in each step of a
  row: (1, 1) of a run that exchanges gradients.
  """
  values = _values(_words(flags))
  try:
    steps = int(values.get('--local_steps', '1'))
    return max(steps, 1), max(int(values.get('--fragments', '1')), 1)
  except ValueError:
    return 1, 1


def rates(flags: str) -> str:
  """Returns the flags of the learning rate and its schedule, sorted.

  The outer learning rate of local steps is not among them: it belongs to the
  method that is compared.
  """
  found = {
    name: value
    for name, value in _values(_words(flags)).items()
    if name in (*_SCHEDULE, _FLAG_FILE)
    or ('learning_rate' in name and 'outer' not in name)
  }
  return ' '.join(f'{n}={v}' if v else n for n, v in sorted(found.items()))


def _values(words: Sequence[str]) -> dict[str, str]:
  """Returns the values of flags by name; the last of several counts.

  Flags of --recipe that the words do not have are among them.
  """
  flags = [word for word in words if word.startswith('--')]
  given = {
    name: value for name, _, value in (word.partition('=') for word in flags)
  }
  recipe = catalog.RECIPES.get(given.get('--recipe', ''))
  expanded = recipe.flags() if recipe else {}
  return {f'--{name}': str(value) for name, value in expanded.items()} | given


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
  """Splits flags, and writes `-name value` or `--name value` as `--name=value`.

  Text that is no command line is one word.
  """
  try:
    words = shlex.split(flags)
  except ValueError:
    return [flags]
  found: list[str] = []
  lacks_value = False
  for word in words:
    if dashes := _DASHES.match(word):
      found.append(f'--{word[dashes.end() :]}')
    elif lacks_value and word != '--':
      found[-1] += f'={word}'
    else:
      found.append(word)
    lacks_value = bool(dashes) and '=' not in word
  return found
