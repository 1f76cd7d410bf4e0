"""Processes that find each other in a folder of a shared file system.

Each leaves a file with its address and waits for those of the others. A folder
is one run's; whoever can write to it chooses whom the processes talk to, so
what stands there is read as hostile.
"""

import os
import re
import stat
import time

from terngrad.cluster import spec as clusters

_LOOK_EVERY = 0.2  # seconds
# A name has 253 characters at most, a port five.
_MAX_BYTES = 300
_NAME = re.compile(r'task_([0-9]{1,6})_of_([0-9]{1,6})')


def meet(folder, index, count, address, timeout):
  """Tells the others who this process is, and waits for them.

  A process that comes again with the same address is welcome: a run that was
  restarted finds its files and goes on.

  Args:
    folder: the run's own, on a file system that all share; made if missing.
    index: of this process, from 0; process 0 is the chief.
    count: of processes.
    address: of this process, 'host:port', as the others reach it.
    timeout: seconds to wait for the others.

  Returns:
    A `cluster.Cluster` of workers.

  Raises:
    clusters.ClusterError: somebody did not come, a file is of another run or
      none of ours, the folder cannot be used, or see `cluster.make`.
  """
  if not folder:
    raise clusters.ClusterError(
      'rendezvous_dir: expected a folder that all processes share, one a run, '
      'received nothing. Give every process the same.'
    )
  if not 0 <= index < count <= clusters.MAX_TASKS:
    raise clusters.ClusterError(
      f'Rendezvous: expected 1 to {clusters.MAX_TASKS} processes and a number '
      f'from 0 below that, received {count} and {index}. Set '
      '--rendezvous_processes and --task_id.'
    )
  clusters.parse_address(address, 'own_address')
  try:
    os.makedirs(folder, exist_ok=True)
    _leave(folder, _name(index, count), address)
    addresses = _wait(folder, count, timeout)
  except OSError as error:
    raise clusters.ClusterError(
      f'rendezvous_dir: expected a folder to write to, received: {error}. '
      'Check its path and rights.'
    ) from error
  return clusters.make({'worker': addresses}, 'worker', index)


def _name(index, count):
  return f'task_{index}_of_{count}'


def _leave(folder, name, address):
  """Writes a whole file at once, or finds the same one there."""
  path = os.path.join(folder, name)
  staged = f'{path}.{os.uname().nodename}.{os.getpid()}'
  with open(staged, 'x', encoding='ascii') as file:
    file.write(f'{address}\n')
  try:
    # Unlike a rename, a link replaces nothing.
    os.link(staged, path)
  except FileExistsError as error:
    found = _read(path)
    if found != address:
      raise clusters.ClusterError(
        f'{path}: expected {address}, as this process has, received {found}: '
        'the file is of an earlier run, or two processes have one --task_id. '
        'Give this run another --rendezvous_dir.'
      ) from error
  finally:
    os.unlink(staged)


def _wait(folder, count, timeout):
  """The addresses of all; names who is missing after `timeout` seconds."""
  end = time.monotonic() + timeout
  found = {}
  while True:
    _check_run(folder, count)
    for index in range(count):
      if index not in found:
        address = _read(os.path.join(folder, _name(index, count)))
        if address is not None:
          found[index] = address
    missing = [index for index in range(count) if index not in found]
    if not missing:
      return [found[index] for index in range(count)]
    if time.monotonic() > end:
      shown = ', '.join(map(str, missing[:20]))
      raise clusters.ClusterError(
        f'Rendezvous: expected {count} processes in {folder} within '
        f'--start_timeout={timeout:g} seconds, received {len(found)}; missing: '
        f'{shown}{" and more" if len(missing) > 20 else ""}. Start the process '
        f'with --task_id={missing[0]}, and see that it has the same folder.'
      )
    time.sleep(_LOOK_EVERY)


def _check_run(folder, count):
  """Refuses a folder of a run with another number of processes."""
  for name in os.listdir(folder):
    match = _NAME.fullmatch(name)
    if match and int(match[2]) != count:
      raise clusters.ClusterError(
        f'{os.path.join(folder, name)}: expected files of {count} processes, '
        f'received one of {int(match[2])}: another run was here. Give this run '
        'another --rendezvous_dir.'
      )


def _read(path):
  """The address in a file; None where there is no file."""
  try:
    # A link could lead anywhere, and a pipe would let this wait for ever.
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
  except FileNotFoundError:
    return None
  if not stat.S_ISREG(os.fstat(number).st_mode):
    os.close(number)
    raise clusters.ClusterError(
      f'{path}: expected a plain file, received something else. Look who can '
      'write to this folder.'
    )
  with open(number, 'rb') as file:
    content = file.read(_MAX_BYTES + 1)
  line = content.decode('ascii', 'replace')
  if not line.endswith('\n') or len(content) > _MAX_BYTES:
    raise clusters.ClusterError(
      f'{path}: expected a line of host:port, received {clusters.shown(line)}. '
      'Look who can write to this folder, or give another --rendezvous_dir.'
    )
  return clusters.parse_address(line[:-1], path)
