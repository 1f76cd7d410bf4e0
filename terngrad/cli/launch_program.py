"""The part of `terngrad launch` that starts any program with TF_CONFIG."""

import importlib.metadata
import json
import os
import re
import shutil
from collections.abc import Sequence

from terngrad.cli import flags
from terngrad.cluster import spec
from terngrad.launching import processes

USAGE = """\

Any other program, such as a Keras program with MultiWorkerMirroredStrategy:

  {program} -n 2 -- python my_program.py --epochs=3
  {program} --hosts=node1,node2 --rank=0 --allow_insecure_network \\
      -- python my_program.py

sets TF_CONFIG for each worker. A program gets signals together with all
processes that it starts; when it ends, those that it leaves are ended too. With
--rank nothing is started by ssh: run the command once on each host, here with
--rank=1 on node2. Each of these commands knows only the process of its host: if
one fails, stop the commands on the other hosts, whose processes wait for it
until TensorFlow's time-out.
"""

# Packages whose modules are programs of terngrad.
_PACKAGES = ('terngrad.bin.', 'terngrad.cli.')
# Python's options: a module, after letters of other options, and those whose
# value is the next word.
_MODULE, _WITH_VALUE = re.compile('-[bBdEiIOPqsSuvx]*m(.*)'), ('-W', '-X')
# The first words that name a command of `terngrad`.
_TRAINERS = ('train', 'distributed_train')


def is_program(command: Sequence[str]) -> bool:
  """Returns whether the words after `--` start a program, not a trainer.

  Raises:
    terngrad.cli.flags.UsageError: they start neither.
  """
  first = command[0] if command else ''
  _refuse_own_programs(command)
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


def _refuse_own_programs(command: Sequence[str]) -> None:
  """Refuses terngrad's programs, each process of which would train alone."""
  module = _module(command)
  programs = _own_programs()
  # `python /path/terngrad train` too.
  names = [os.path.basename(word) for word in command[:2]]
  name = module or next((n for n in names if n in programs), '')
  if module:
    is_own = module.startswith(_PACKAGES) or module in programs.values()
  else:
    is_own = name in programs
  # `terngrad measure fit` reads TF_CONFIG.
  if not is_own or 'measure' in command[:4]:
    return
  raise flags.UsageError(
    f'Expected `-- train DATASET --flag=value ...` or a program of yours after '
    f'the flags, received {name}: its processes would not find each other. '
    'Write `-- train mnist ...` to train in several processes; start other '
    'programs of terngrad without `launch`.'
  )


def _module(command: Sequence[str]) -> str:
  """Returns NAME of `python -m NAME`, or ''."""
  if not os.path.basename(command[0] if command else '').startswith('python'):
    return ''
  words = iter(command[1:])
  for word in words:
    if found := _MODULE.fullmatch(word):
      return found[1] or next(words, '')
    if word in _WITH_VALUE:
      next(words, '')
    elif not word.startswith('-'):
      return ''
  return ''


def _own_programs() -> dict[str, str]:
  """Returns the installed programs of terngrad and their modules."""
  main = {'terngrad': 'terngrad.cli.main'}
  try:
    found = importlib.metadata.distribution('terngrad').entry_points
  except importlib.metadata.PackageNotFoundError:
    return main
  return main | {
    each.name: each.module for each in found if each.group == 'console_scripts'
  }


def check_port(task: processes.ProcessCommand) -> None:
  """Refuses a port that is in use; TensorFlow's message would not name it.

  Raises:
    terngrad.cli.flags.UsageError: the task cannot listen on its port.
  """
  try:
    spec.check_port(_cluster(task))
  except spec.ClusterError as error:
    raise flags.UsageError(f'--hosts: {error}') from error


def network_warning(task: processes.ProcessCommand) -> str:
  """Returns the line of warning for a task's cluster, which was checked."""
  cluster = _cluster(task)
  addresses = cluster.jobs['worker']
  if all(map(spec.is_loopback, addresses)):
    return spec.describe_open_ports(addresses)
  return spec.check_network(cluster, allow_insecure_network=True)


def _cluster(task: processes.ProcessCommand) -> spec.Cluster:
  """Returns the cluster of a process, from its TF_CONFIG."""
  config = json.loads(task.variables['TF_CONFIG'])
  return spec.make(config['cluster'], 'worker', config['task']['index'])


def tasks(
  command: Sequence[str], addresses: Sequence[str], servers: int
) -> list[processes.ProcessCommand]:
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
    processes.ProcessCommand(
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
