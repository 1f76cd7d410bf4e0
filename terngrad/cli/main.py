"""`terngrad`: the entry point of all commands and of older programs."""

import functools
import sys
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence

from slim import errors as data_errors
from terngrad import version
from terngrad.cli import command
from terngrad.cli import commands
from terngrad.cli import flags
from terngrad.launching import output

_USAGE = """\
terngrad: trains networks with compressed gradients.

  terngrad GROUP COMMAND [--flag=value ...]
  terngrad GROUP --help
  terngrad GROUP COMMAND --help
"""


def run(arguments: Sequence[str] | None = None) -> int:
  """Runs the command that a command line names; returns the exit code.

  Args:
    arguments: the arguments; None for those of this process.
  """
  output.open_missing()
  words = list(sys.argv[1:] if arguments is None else arguments)
  if words == ['--version']:
    return command.say_all(f'terngrad {version.__version__}', command.DONE)
  path: list[str] = []
  members = commands.COMMANDS
  while words and not words[0].startswith('-'):
    name = words.pop(0)
    if name not in members:
      return _refuse_unknown(path, name, members)
    path.append(name)
    found = members[name]
    if isinstance(found, commands.Entry):
      program = ' '.join(('terngrad', *path))
      return commands.run(
        functools.partial(commands.load, found), program, words
      )
    members = found.members
  if words and not flags.asks_for_help(words):
    return _refuse_unknown(path, words[0], members)
  code = command.DONE if words or not path else command.REFUSED
  return command.say_all(_listing(path, members), code)


def starter(*path: str, name: str, module: str = '') -> Callable[[], int]:
  """Returns the entry point of a program with an older name.

  Args:
    *path: path of the command, such as 'train', 'mnist'.
    name: name of the program, such as 'mnist_train'.
    module: `__name__` of the caller. If it is '__main__', the command runs at
      once and the process ends.

  Returns:
    A function that runs the command on this process's command line and returns
    the exit code.
  """
  run = functools.partial(_start, path, name)
  if module == '__main__':
    sys.exit(run())
  return run


def _start(path: tuple[str, ...], name: str) -> int:
  output.open_missing()
  return commands.run(
    functools.partial(commands.command_at, path), name, sys.argv[1:]
  )


def _listing(
  path: Sequence[str],
  members: Mapping[str, commands.Entry | commands.CommandGroup],
) -> str:
  if not path:
    lines = [_USAGE]
  else:
    summary = commands.find(path).summary
    lines = [f'{" ".join(("terngrad", *path))}: {summary}\n']
  width = max(map(len, members))
  lines += [f'  {n:{width}}  {found.summary}' for n, found in members.items()]
  return '\n'.join(lines)


def _refuse_unknown(
  path: Sequence[str], name: str, members: Collection[str]
) -> int:
  program = ' '.join(('terngrad', *path))
  hint = data_errors.did_you_mean(name, members, f' See {program} --help.')
  return command.report_error(
    'error',
    f'{program}: expected one of {", ".join(members)}, received {name!r}.'
    f'{hint}',
    command.REFUSED,
  )


if __name__ == '__main__':
  sys.exit(run())
