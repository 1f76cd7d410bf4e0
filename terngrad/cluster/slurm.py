"""Parser for Slurm's compact lists of hosts and of tasks per host.

`rack[1-2]n[08-10],login` is a list of seven hosts. `2(x3),1` says that the
first three hosts have two tasks each. Slurm's `scontrol` expands such lists
where it is installed. A container often has the job's variables without the
program.

References:
  Slurm, "NodeName" in slurm.conf(5), https://slurm.schedmd.com/slurm.conf.html
"""

import contextlib
import itertools
import math
import re
import shutil
import subprocess

from terngrad.cluster import spec

_SECONDS = 30
# A host is a sequence of names and brackets. Commas separate hosts.
_HOST = re.compile(r'(?:[^\[\],\s]+|\[[^\[\]\s]*\])+')
_PART = re.compile(r'\[([^\]]*)\]|([^\[]+)')
_RANGE = re.compile(r'([0-9]{1,18})(?:-([0-9]{1,18}))?')
_TASKS = re.compile(r'([0-9]{1,6})(?:\(x([0-9]{1,6})\))?')


def hosts(text: str) -> list[str]:
  """Expands a list of hosts, in its order, by `scontrol` or by `expand`.

  Raises:
    spec.ClusterError: the text is not a list of hosts.
  """
  program, found = shutil.which('scontrol'), list[str]()
  if program:
    # `scontrol` fails without Slurm's configuration, as in a container, and
    # prints nothing for a list that it cannot parse.
    with contextlib.suppress(OSError, subprocess.SubprocessError):
      found = subprocess.run(
        [program, 'show', 'hostnames', text],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=True,
      ).stdout.split()
  return found or expand(text)


def expand(text: str) -> list[str]:
  """Expands a list of hosts, in its order.

  Brackets contain numbers and ranges. A range has as many digits as its first
  number. If a name has two brackets, the last one changes first.

  Examples:
    >>> expand('node[9-11],gpu[01-02]-ib')
    ['node9', 'node10', 'node11', 'gpu01-ib', 'gpu02-ib']

  Raises:
    spec.ClusterError: the text is not a list, or has more than `spec.MAX_TASKS`
      hosts.
  """
  words = _HOST.findall(text)
  # Only commas and spaces may remain between hosts.
  if not words or re.sub(r'[,\s]', '', _HOST.sub('', text)):
    raise _host_list_error(text)
  found: list[str] = []
  for word in words:
    parts = [
      [name] if name else _numbers(ranges, text)
      for ranges, name in _PART.findall(word)
    ]
    if len(found) + math.prod(map(len, parts)) > spec.MAX_TASKS:
      raise _host_list_error(text)
    found += map(''.join, itertools.product(*parts))
  return found


def tasks_per_host(text: str) -> list[int]:
  """Returns the number of tasks of each host.

  Examples:
    >>> tasks_per_host('2(x3),1')
    [2, 2, 2, 1]

  Raises:
    spec.ClusterError: the text has another form.
  """
  found: list[int] = []
  for word in text.split(','):
    match = _TASKS.fullmatch(word)
    hosts = int(match[2] or 1) if match else 0
    if not match or not 0 < hosts <= spec.MAX_TASKS - len(found):
      raise spec.ClusterError(
        'Slurm: expected numbers of tasks such as 2(x3),1 in '
        f'SLURM_STEP_TASKS_PER_NODE, received {spec.quote(text)}. Start the '
        'program with srun.'
      )
    found += [int(match[1])] * hosts
  return found


def _numbers(ranges: str, text: str) -> list[str]:
  """Expands the numbers in brackets, as texts."""
  found: list[str] = []
  for word in ranges.split(','):
    match = _RANGE.fullmatch(word)
    if not match:
      raise _host_list_error(text)
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last < first + spec.MAX_TASKS - len(found):
      raise _host_list_error(text)
    found += [f'{n:0{len(match[1])}d}' for n in range(first, last + 1)]
  return found


def _host_list_error(text: str) -> spec.ClusterError:
  return spec.ClusterError(
    f'Slurm: expected a list of 1 to {spec.MAX_TASKS} hosts such as '
    f'n1,gpu[08-10,12] in SLURM_STEP_NODELIST, received {spec.quote(text)}. '
    'Start the program with srun, or list the hosts in a file, --cluster=FILE.'
  )
