"""The form of an error about a configuration or an argument of a launch."""

import re

from terngrad import errors

_SECONDS = re.compile(r'0|[1-9][0-9]{0,5}')
_EXPERIMENT = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.-]{0,99}')


def refusal(
  what: str, expected: str, received: str, remedy: str
) -> errors.ConfigError:
  """The error to raise: what is wrong in a line, and three lines about it."""
  return errors.ConfigError(
    f'{what}\n  expected: {expected}\n  received: {received}\n'
    f'  remedy:   {remedy}'
  )


def whole_number(what: str, flag: str, text: str) -> int:
  """Reads the value of a flag.

  Args:
    what: is wrong otherwise, such as 'no time'.
    flag: its name.
    text: its value.

  Returns:
    Integer from 0 to 999999.

  Raises:
    terngrad.errors.ConfigError: the text is no such number.
  """
  if not _SECONDS.fullmatch(text):
    raise refusal(
      what, f'--{flag}: a whole number, 0 or more', text, 'give one'
    )
  return int(text)


def check_experiment(name: str) -> None:
  """Raises `terngrad.errors.ConfigError` for what cannot name a folder."""
  if not _EXPERIMENT.fullmatch(name):
    raise refusal(
      'no name of an experiment',
      'letters, digits, _ . and -',
      name,
      'give another --experiment',
    )
