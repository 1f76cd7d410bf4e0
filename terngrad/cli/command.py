"""Declares and runs commands.

A module that declares commands does not import TensorFlow at its top level, so
`--help` and wrong flags are answered without it. It refers to the modules that
do the work by `terngrad.lazy.module`.

Exit codes: 0 done; 1 training failed; 2 it could not start and nothing was
written; 75 another process was lost, and all can continue; 128 + n stopped by
signal n, after a checkpoint. Converters return 1 if the data cannot be used.
"""

import dataclasses
import os
import re
import select
import signal
import sys
import traceback
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple
from typing import TypeVar

from absl import logging

from slim import errors as data_errors
from terngrad import errors
from terngrad import quiet
from terngrad import signal_guard
from terngrad import signals
from terngrad.cli import extras
from terngrad.cli import flags
from terngrad.codec.methods import registry
from terngrad.config import options
from terngrad.launching import exit_codes
from terngrad.launching import output

DONE, FAILED, REFUSED = 0, 1, 2
# Options whose values are codecs, and values of them that name none.
_CODEC_OPTIONS = ('codec', 'codecs')
_NO_CODEC = ('', 'all')
# A word of an error's message that is no part of a path.
_WORD = re.compile(r'(?<![\w/.])(?<!\w-)\w+(?![\w/]|[.-]\w)')
SIGNALLED = exit_codes.SIGNALLED
SETTLE_SECONDS = exit_codes.SETTLE_SECONDS

if TYPE_CHECKING:
  from _typeshed import DataclassInstance

  _Config = TypeVar('_Config', bound=DataclassInstance)


class Command(NamedTuple):
  """The declaration of a command.

  Attributes:
    usage: the first lines of --help: '{program}: what it is for.', an empty
      line, and what a user should know. '{program}' is replaced by the
      command's name.
    options: dataclass whose fields are `config.options.option`s.
    act: takes an instance of `options`; returns the exit code, or None for
      `DONE`. Raises `flags.UsageError` for contradictory flags.
    defaults: maps field names to this command's defaults, where they differ.
    words: names of the options that positional arguments set, in order.
    required: names of options that must not be empty; checked before anything
      is loaded.
    rest: name of a tuple field that takes the arguments after `--`.
    given: name of a field that takes the names of the flags that the command
      line sets.
    flag_names: maps options to this command's flags, so that error messages
      name the flags of the command line, and recipes set them.
    needs_tensorflow: whether `act` uses TensorFlow.
    packages: modules of extras that `act` always needs. They are looked for
      before TensorFlow is imported, which takes seconds.
    is_converter: True returns `FAILED` for data that cannot be used.
    ends_process: True ends the process without Python's shutdown, because
      TensorFlow's servers and calls that wait for other tasks cannot be
      stopped.
  """

  usage: str
  options: type
  act: Callable[[Any], int | None]
  defaults: dict[str, Any] = {}
  words: tuple[str, ...] = ()
  required: tuple[str, ...] = ()
  rest: str = ''
  given: str = ''
  flag_names: dict[str, str] = {}
  needs_tensorflow: bool = True
  packages: tuple[str, ...] = ()
  is_converter: bool = False
  ends_process: bool = False


def run(command: Command, program: str, arguments: Sequence[str]) -> int:
  """Parses a command line and runs the command; prints one line for an error.

  Args:
    command: the command.
    program: its name, as the user typed it.
    arguments: the arguments after the name.

  Returns:
    The exit code.
  """
  usage = command.usage.replace('{program}', program)
  if flags.asks_for_help(arguments, command.rest):
    text = flags.help_text(command.options, command.defaults, usage)
    return say_all(text, DONE)
  with signals.obey():
    if not command.ends_process:
      return _act(command, program, arguments)
    try:
      code = _act(command, program, arguments)
    except Exception:
      # Print unexpected errors here: they must not lead to an abort.
      traceback.print_exc()
      code = FAILED
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)


def _act(command: Command, program: str, arguments: Sequence[str]) -> int:
  try:
    signal_guard.check_seconds()
    parsed = flags.parse(
      command.options,
      command.defaults,
      arguments,
      command.words,
      command.rest,
      command.flag_names,
    )
    values = parsed.values
    if command.given:
      values = dataclasses.replace(values, **{command.given: parsed.given})
    require(values, *command.required)
    _check_codecs(values)
    extras.check_packages(command.packages)
    if parsed.verbosity > 0:
      quiet.show_messages()
    if command.needs_tensorflow:
      # Keep signals away from TensorFlow's threads; see
      # `signals.block_while_joining`.
      with signals.block_while_importing():
        quiet.import_tensorflow()
    logging.use_absl_handler()
    if command.is_converter:
      logging.set_verbosity(logging.INFO)
    return command.act(values) or DONE
  except (flags.UsageError, errors.ConfigError, data_errors.DataError) as error:
    is_data_error = isinstance(error, data_errors.DataError) and not isinstance(
      error, data_errors.UnknownNameError
    )
    code = FAILED if command.is_converter and is_data_error else REFUSED
    return report_error('error', _use_flag_names(command, error), code)
  except ModuleNotFoundError as error:
    if message := extras.advice(error, program):
      return report_error('error', message, REFUSED)
    raise
  except errors.TrainingError as error:
    return report_error('error', _use_flag_names(command, error), FAILED)
  except (BrokenPipeError, output.LostOutputError) as error:
    return _report_lost_output(error)
  except KeyboardInterrupt as error:
    if command.is_converter:
      name = program.rpartition(' ')[2]
      report_error(name, 'stopped; the same command continues.', 0)
    return SIGNALLED + getattr(error, 'number', signal.SIGINT)


def say_all(text: str, code: int) -> int:
  """Prints a text; returns the code, or `FAILED` if it was not written."""
  try:
    say(text)
  except (BrokenPipeError, output.LostOutputError) as error:
    return _report_lost_output(error)
  return code


def _report_lost_output(error: OSError) -> int:
  """Explains that the output cannot be written; returns the exit code."""
  received = 'one that ended before, such as head, so the command stopped'
  if isinstance(error, output.LostOutputError):
    output.discard()
    received = f'"{error.strerror}"'
  elif not _discard_closed_output():
    raise error
  return report_error(
    'error',
    'the output: expected a program that reads it to the end, or a file with '
    f'space, received {received}. Write the output to another file; the same '
    'command continues.',
    FAILED,
  )


def _discard_closed_output() -> bool:
  """Discards what nobody reads any more; returns whether there was such output.

  Otherwise Python would report the error again when it ends.
  """
  outputs = select.poll()
  for stream in (sys.stdout, sys.stderr):
    outputs.register(stream, 0)
  closed = [file for file, event in outputs.poll(0) if event & select.POLLERR]
  for file in closed:
    with open(os.devnull, 'wb') as sink:
      os.dup2(sink.fileno(), file)
  return bool(closed)


def _use_flag_names(command: Command, error: Exception) -> str:
  """Returns an error's message, with the command's names of the options."""
  return _WORD.sub(
    lambda found: command.flag_names.get(found[0], found[0]), str(error)
  )


def _check_codecs(values: Any) -> None:
  """Refuses unknown codecs before TensorFlow is imported, which takes seconds.

  Raises:
    terngrad.errors.ConfigError: a name is unknown.
  """
  given = options.by_name(values)
  for name in _CODEC_OPTIONS:
    texts = given.get(name, ())
    for text in (texts,) if isinstance(texts, str) else texts:
      if text not in _NO_CODEC:
        with errors.as_config_error():
          registry.check_names(text)


def line_of(*words: str) -> list[str]:
  """Returns the command line that runs `terngrad` with arguments."""
  return [sys.executable, '-m', 'terngrad.cli.main', *words]


def say(line: object) -> None:
  """Prints a line and flushes, so that a log can be followed."""
  output.say(str(line))


def report_error(label: str, error: object, code: int) -> int:
  """Prints an error with a label; returns the exit code."""
  sys.stderr.write(f'{label}: {error}\n')
  return code


def require(values: Any, *names: str) -> None:
  """Refuses named options whose value is empty.

  Raises:
    flags.UsageError: an option is empty; the message names it.
  """
  for name in names:
    if not getattr(values, name):
      raise flags.UsageError(
        f'--{name}: expected a value; received none. See --help.'
      )


def require_beside(
  values: Any, name: str, needed: str, is_met: bool, received: str = 'none'
) -> None:
  """Refuses an option of the command line that nothing would read.

  Args:
    values: the flags, with a field `given`.
    name: the option.
    needed: what it has an effect with, such as '--shuffle'.
    is_met: whether that is given.
    received: what is given instead.

  Raises:
    flags.UsageError: the option is given, what it needs is not.
  """
  if name in values.given and not is_met:
    raise flags.UsageError(
      f'--{name}: expected {needed} beside it, received {received}. Give '
      f'{needed}, or leave --{name} out.'
    )


def at_least(lowest: float, values: Any, *names: str) -> None:
  """Refuses options whose values are below `lowest`.

  Raises:
    terngrad.errors.ConfigError: a value is too small; the message names it.
  """
  for name in names:
    options.at_least(name, getattr(values, name), lowest)


def counts(name: str, texts: Sequence[str]) -> list[int]:
  """Reads the items of a list of numbers of workers, devices, ...

  Raises:
    flags.UsageError: an item is no whole number above 0; the message names it.
  """
  for text in texts:
    if not text.isdecimal() or not int(text):
      raise flags.UsageError(
        f'--{name}: expected whole numbers above 0, received {text!r}. Write '
        f'for example --{name}=2,4.'
      )
  return [int(text) for text in texts]


def named_path(
  flag: str, item: str, kind: str, example: str
) -> tuple[str, str]:
  """Splits NAME=PATH.

  Args:
    flag: the flag that gave the text, for the error message.
    item: the text.
    kind: what is at the path, such as 'FILE', for the error message.
    example: a valid text, for the error message.

  Returns:
    (name, path).

  Raises:
    flags.UsageError: the text has another form.
  """
  name, equals, path = item.partition('=')
  if not (name and equals and path):
    raise flags.UsageError(
      f'--{flag}: expected NAME={kind}, received {item!r}. Write for example '
      f'{example}.'
    )
  return name, path


def named_paths(
  flag: str, items: Iterable[str], kind: str, example: str
) -> dict[str, str]:
  """Splits items with `named_path`; returns {name: path}.

  Raises:
    flags.UsageError: an item has another form, or two have the same name.
  """
  found: dict[str, str] = {}
  for item in items:
    name, path = named_path(flag, item, kind, example)
    if name in found:
      raise flags.UsageError(
        f'--{flag}: expected a different name for each {kind}, received {name} '
        'twice. Rename one.'
      )
    found[name] = path
  return found


def drop_options(config: type, names: Collection[str]) -> Any:
  """Copies a configuration class without some options, as a base class.

  Args:
    config: the configuration class.
    names: options to drop, because the subclass renames them.

  Returns:
    A frozen dataclass. Type checkers see an arbitrary class, since its fields
    exist only at run time.
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


def build_config(
  values: Any,
  config_class: 'type[_Config]',
  names: Mapping[str, str],
  **changes: Any,
) -> '_Config':
  """Builds a configuration from flags with other names.

  Args:
    values: dataclass of flags.
    config_class: the class of the configuration.
    names: maps flags to fields, where they differ.
    **changes: values of fields that no flag sets.
  """
  field_names = {field.name for field in options.fields(config_class)}
  fields = {
    name: value
    for flag, value in options.by_name(values).items()
    if (name := names.get(flag, flag)) in field_names
  }
  return options.build(config_class, **(fields | changes))
