"""A command: what it is for, its options, what it does; and how it is run.

A module that declares commands imports no TensorFlow at its top: `--help` and
wrong flags are answered without it. It names what does the work by
`terngrad.lazy.module`.

Exit codes: 0 done; 1 training had to stop; 2 it could not begin, nothing was
written; 75 another process was lost, all can continue; 128 + n stopped by
signal n, after a checkpoint. Converters say 1 where the data cannot be used.
"""

import dataclasses
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple
from typing import TypeVar

from absl import logging

from slim import errors as data_errors
from terngrad import errors
from terngrad import signals
from terngrad.cli import flags
from terngrad.cli import quiet
from terngrad.config import options
from terngrad.launching import exit_codes

DONE, FAILED, REFUSED = 0, 1, 2
SIGNALLED = exit_codes.SIGNALLED
SETTLE = exit_codes.SETTLE

if TYPE_CHECKING:
  from _typeshed import DataclassInstance

  _Config = TypeVar('_Config', bound=DataclassInstance)


class Command(NamedTuple):
  """What a program is.

  Attributes:
    usage: the first lines of --help: '{program}: what it is for.', an empty
      line, and what a user should know. '{program}' stands for its name.
    options: dataclass whose fields are `config.options.option`s.
    act: takes such a value; returns the exit code, or None for `DONE`. Raises
      `flags.UsageError` for flags that contradict each other.
    defaults: dict of field name to this program's own default.
    words: names of the options that words without a flag's name are values of,
      in their order.
    required: names of the options that must be given, which is checked before
      anything is loaded.
    rest: name of the field, a tuple, that takes what stands behind `--`.
    own_names: dict of option to the flag that stands for it here, so that
      errors have the words of the command line.
    needs_tensorflow: whether `act` uses it.
    is_converter: errors carry the program's name, and data that cannot be used
      is a failure.
    ends_process: Python's own end is left out, because TensorFlow's servers and
      calls that wait for other tasks cannot be stopped.
  """

  usage: str
  options: type
  act: Callable[[Any], int | None]
  defaults: dict[str, Any] = {}
  words: tuple[str, ...] = ()
  required: tuple[str, ...] = ()
  rest: str = ''
  own_names: dict[str, str] = {}
  needs_tensorflow: bool = True
  is_converter: bool = False
  ends_process: bool = False


def run(command: Command, program: str, arguments: Sequence[str]) -> int:
  """Reads a command line and acts on it, with one line for an error.

  Args:
    command: what to run.
    program: its name, as its user typed it.
    arguments: the words after it.

  Returns:
    The exit code.
  """
  usage = command.usage.replace('{program}', program)
  if flags.asks_for_help(arguments, command.rest):
    say(flags.help_text(command.options, command.defaults, usage))
    return DONE
  with signals.obey():
    if not command.ends_process:
      return _act(command, program, arguments)
    try:
      code = _act(command, program, arguments)
    except Exception:
      # What nobody foresaw must not be followed by an abort.
      traceback.print_exc()
      code = FAILED
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)


def _act(command: Command, program: str, arguments: Sequence[str]) -> int:
  label = program.rpartition(' ')[2] if command.is_converter else 'error'
  try:
    parsed = flags.parse(
      command.options,
      command.defaults,
      arguments,
      command.words,
      command.rest,
    )
    require(parsed.values, *command.required)
    if command.needs_tensorflow:
      # Its threads leave signals to this one, see `signals.joining`.
      with signals.importing():
        quiet.import_tensorflow(parsed.verbosity > 0)
    logging.use_absl_handler()
    if command.is_converter:
      logging.set_verbosity(logging.INFO)
    return command.act(parsed.values) or DONE
  except (flags.UsageError, errors.ConfigError, data_errors.DataError) as error:
    is_of_data = isinstance(error, data_errors.DataError) and not isinstance(
      error, data_errors.UnknownNameError
    )
    code = FAILED if command.is_converter and is_of_data else REFUSED
    return complain(label, _in_own_words(command, error), code)
  except errors.TrainingError as error:
    return complain(label, _in_own_words(command, error), FAILED)
  except KeyboardInterrupt as error:
    if command.is_converter:
      complain(label, 'stopped; the same command continues.', 0)
    return SIGNALLED + getattr(error, 'number', signal.SIGINT)


def _in_own_words(command: Command, error: Exception) -> str:
  """What an error says, with the command's names of the options."""
  return re.sub(
    r'\w+', lambda found: command.own_names.get(found[0], found[0]), str(error)
  )


def say(line: object) -> None:
  """Prints a line at once, so that a log can be followed."""
  sys.stdout.write(f'{line}\n')
  sys.stdout.flush()


def complain(label: str, error: object, code: int) -> int:
  """Prints an error behind a label; returns the exit code."""
  sys.stderr.write(f'{label}: {error}\n')
  return code


def require(values: Any, *names: str) -> None:
  """Refuses options without a value.

  Args:
    values: dataclass of options.
    *names: of options.

  Raises:
    flags.UsageError: one of them is ''; names it.
  """
  for name in names:
    if not getattr(values, name):
      raise flags.UsageError(
        f'--{name}: expected a value; received none. See --help.'
      )


def at_least(lowest: float, values: Any, *names: str) -> None:
  """Refuses numbers that are too small.

  Args:
    lowest: the least that they may be.
    values: dataclass of options.
    *names: of options.

  Raises:
    terngrad.errors.ConfigError: one of them is less; names it.
  """
  for name in names:
    options.at_least(name, getattr(values, name), lowest)


def named_path(
  flag: str, item: str, kind: str, example: str
) -> tuple[str, str]:
  """Reads NAME=PATH.

  Args:
    flag: whose value it is, for the message.
    item: the text.
    kind: what is at the path, such as 'FILE'.
    example: of such a text.

  Returns:
    (name, path).

  Raises:
    flags.UsageError: the text is not of this form.
  """
  name, equals, path = item.partition('=')
  if not (name and equals and path):
    raise flags.UsageError(
      f'--{flag}: expected NAME={kind}, received {item!r}. Write for example '
      f'{example}.'
    )
  return name, path


def without(config: type, names: Collection[str]) -> Any:
  """The options of a configuration but some, as a base class of others.

  Args:
    config: its class.
    names: of the options that the subclass calls otherwise.

  Returns:
    A frozen dataclass, to types like any class: its fields are not known
    before it is made.
  """
  return dataclasses.make_dataclass(
    f'{config.__name__}Without',
    [
      (o.name, type(o.default), options.option(o.default, o.help, o.group))
      for o in options.fields(config)
      if o.name not in names
    ],
    frozen=True,
    kw_only=True,
  )


def renamed(
  values: Any,
  config_class: 'type[_Config]',
  names: Mapping[str, str],
  **changes: Any,
) -> '_Config':
  """The configuration that flags of other names describe.

  Args:
    values: dataclass of flags.
    config_class: what to make.
    names: flag to field, where they differ.
    **changes: fields that are no flag's value.
  """
  known = {field.name for field in options.fields(config_class)}
  given = {
    name: value
    for flag, value in options.by_name(values).items()
    if (name := names.get(flag, flag)) in known
  }
  return options.build(config_class, **(given | changes))
