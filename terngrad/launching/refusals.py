"""Errors about the configuration or the arguments of a launch."""

import re

from terngrad import errors

_WHOLE_NUMBER = re.compile(r'0|[1-9][0-9]{0,5}')
_EXPERIMENT = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.-]{0,99}')


def refusal(
  what: str, expected: str, received: str, remedy: str
) -> errors.ConfigError:
  """Makes an error: a line with the problem and three lines that explain it."""
  return errors.ConfigError(
    f'{what}\n  expected: {expected}\n  received: {received}\n'
    f'  remedy:   {remedy}'
  )


def whole_number(what: str, flag: str, text: str) -> int:
  """Parses the value of a flag that is a whole number.

  Args:
    what: first line of the error, such as 'invalid time'.
    flag: name of the flag, without --.
    text: value of the flag.

  Returns:
    From 0 to 999999.

  Raises:
    terngrad.errors.ConfigError: the text is not such a number.
  """
  if not _WHOLE_NUMBER.fullmatch(text):
    raise refusal(
      what, f'--{flag}: a whole number, 0 or more', text, 'give such a number'
    )
  return int(text)


def check_experiment(name: str) -> None:
  """Raises `terngrad.errors.ConfigError` unless the name suits a folder.

  It has 1 to 100 letters, digits, '_', '.' and '-', and begins with a letter or
  a digit.
  """
  if not _EXPERIMENT.fullmatch(name):
    raise refusal(
      'invalid name of an experiment',
      '1 to 100 letters, digits, _ . and -, the first a letter or digit',
      name,
      'give another --experiment',
    )
