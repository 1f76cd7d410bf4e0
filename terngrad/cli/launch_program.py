"""The part of `terngrad launch` that starts any program with TF_CONFIG."""

import json
import shutil
from collections.abc import Sequence

from terngrad.cli import flags
from terngrad.launching import processes

USAGE = """\

Any other program, such as a Keras program with MultiWorkerMirroredStrategy:

  {program} -n 2 -- python my_program.py --epochs=3
  {program} --hosts=node1,node2 --rank=0 --allow_insecure_network \\
      -- python my_program.py

sets TF_CONFIG for each worker. With --rank nothing is started by ssh: run the
command once on each host, here with --rank=1 on node2.
"""

# The first words that name a command of `terngrad`.
_TRAINERS = ('train', 'distributed_train')


def is_program(command: Sequence[str]) -> bool:
  """Returns whether the words after `--` start a program, not a trainer.

  Raises:
    terngrad.cli.flags.UsageError: they start neither.
  """
  first = command[0] if command else ''
  if first in _TRAINERS and 'slim' not in command[:2]:
    return False
  if first in _TRAINERS or not first or shutil.which(first) is None:
    remedy = 'See --help.'
    if first.endswith('.py'):
      remedy = f'Start a Python file with `-- python {first}`.'
    raise flags.UsageError(
      'Expected `-- train DATASET --flag=value ...` or `-- PROGRAM argument '
      f'...` after the flags, received {" ".join(command) or "nothing"!r}. '
      f'{remedy}'
    )
  return True


def tasks(
  command: Sequence[str], addresses: Sequence[str], servers: int
) -> list[processes.Task]:
  """Returns a process per worker; the chief is the last.

  Args:
    command: the program and its arguments.
    addresses: 'host:port' of each worker.
    servers: --num_ps.

  Raises:
    terngrad.cli.flags.UsageError: there are parameter servers.
  """
  if servers:
    raise flags.UsageError(
      f'--num_ps: expected 0 beside `-- {command[0]} ...`, received {servers}. '
      'Only `-- train` and `-- distributed_train` have parameter servers.'
    )
  return [
    processes.Task(
      f'worker {index}',
      command,
      {
        'TF_CONFIG': json.dumps(
          {
            'cluster': {'worker': list(addresses)},
            'task': {'type': 'worker', 'index': index},
          }
        ),
        # Otherwise Python holds back lines that go to a pipe.
        'PYTHONUNBUFFERED': '1',
      },
      is_program=True,
    )
    for index in reversed(range(len(addresses)))
  ]
