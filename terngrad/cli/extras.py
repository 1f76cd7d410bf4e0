"""Names the extra of the package that a command misses."""

import importlib.util
import re
from collections.abc import Iterable
from importlib import metadata

from slim import errors

# Packages whose module has another name.
_DISTRIBUTIONS = {'PIL': 'pillow', 'tensorflow_datasets': 'tensorflow-datasets'}
_REQUIREMENT = re.compile(r'([\w.-]+).*\bextra *== *["\']([\w-]+)["\']')
# Extras of whole groups of commands; the other commands are the trainers'.
_OF_GROUP = {
  'convert': 'data',
  'measure': 'reports',
  'plan': 'reports',
  'report': 'reports',
  'sweep': 'reports',
}
_TRAINERS = 'trainers'
# Extras that no command is missing.
_NO_COMMANDS = ('all', 'dev', 'gpu')


def advice(error: ModuleNotFoundError, program: str) -> str:
  """Returns the error message for a missing package of an extra.

  Args:
    error: the failed import.
    program: the command, such as 'terngrad report compare'.

  Returns:
    The message; '' if the package belongs to no extra.
  """
  package = (error.name or '').partition('.')[0]
  extras = _extras_of(_DISTRIBUTIONS.get(package, package))
  if not extras:
    return ''
  wanted = next(
    (_OF_GROUP[word] for word in program.split() if word in _OF_GROUP),
    _TRAINERS,
  )
  extra = wanted if wanted in extras else extras[0]
  return (
    f'{program}: expected the package {package}, received none. Install it: '
    f'{errors.install_command(extra)}. The extra all has the packages of all '
    'commands.'
  )


def check_packages(names: Iterable[str]) -> None:
  """Raises `ModuleNotFoundError` for the first package that is missing."""
  for name in names:
    if importlib.util.find_spec(name) is None:
      raise ModuleNotFoundError(f'No module named {name!r}', name=name)


def _extras_of(distribution: str) -> list[str]:
  """Returns the extras that a distribution belongs to, in setup.py's order."""
  try:
    requirements = metadata.requires('terngrad') or []
  except metadata.PackageNotFoundError:
    return []
  found = filter(None, map(_REQUIREMENT.match, requirements))
  return [
    extra
    for name, extra in (match.groups() for match in found)
    if name == distribution and extra not in _NO_COMMANDS
  ]
