"""`terngrad launch --split_dataset`: a run on this machine only."""

import dataclasses
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from terngrad.cli import command
from terngrad.cli import launch_flags
from terngrad.cluster import spec
from terngrad.launching import addresses
from terngrad.launching import configuration
from terngrad.launching import exit_codes
from terngrad.launching import output
from terngrad.launching import remote

_NETWORK = ('unshare', '--map-root-user', '--net')


def apply_flags(
  values: launch_flags.HostFlags, config: configuration.Configuration
) -> configuration.Configuration:
  """Applies the flags for data, workspace and GPUs to a configuration.

  Raises:
    terngrad.errors.ConfigError: the configuration cannot run on this machine.
  """
  count = len(config.worker_hosts)
  data = _absolute(values.split_dataset)
  workspace = config.workspace
  if values.workspace:
    workspace = _absolute(values.workspace)
  changed = dataclasses.replace(
    config,
    data_dirs=tuple(f'{data}/worker_{i}_of_{count}' for i in range(count)),
    worker_devices=tuple(values.worker_devices.split()) or ('',) * count,
    workspace=workspace,
  )
  for address in changed.all_addresses:
    if not spec.is_loopback(address):
      raise changed.refusal(
        'only localhost beside --split_dataset',
        address,
        'leave --split_dataset out',
      )
  return configuration.validate(changed, values.scripts)


def split(values: launch_flags.HostFlags, workers: int) -> int:
  """Links each worker's part of the data; returns the exit code.

  Raises:
    terngrad.errors.ConfigError: --scripts has no split_dataset.sh.
  """
  program = remote.find_script(values.scripts, 'split_dataset.sh').absolute()
  data = _absolute(values.split_dataset)
  done = subprocess.run([program, '--all', data, str(workers)], check=False)
  return exit_codes.as_shell(done.returncode)


def _absolute(path: str) -> str:
  """Completes a path, which may begin with ~/."""
  return os.path.join(os.getcwd(), configuration.expand_home(path))


def start(
  values: launch_flags.HostFlags,
  config: configuration.Configuration,
  words: Sequence[str],
) -> int:
  """Starts all tasks in a private network namespace; returns the exit code.

  If the kernel does not allow one, this is reported and the tasks use the
  network of this process.

  Args:
    values: the flags.
    config: from `apply_flags`.
    words: additional arguments of the workers.
  """
  name = values.experiment
  if name == launch_flags.BY_TIME:
    name = time.strftime('%Y-%m-%d_%H-%M-%S')
  program = [*_launch(), f'--scripts={values.scripts}', f'--experiment={name}']
  with tempfile.NamedTemporaryFile() as file:
    file.write(config.text().encode(errors='surrogateescape'))
    file.flush()
    done = subprocess.run(
      [*_network(config), *program, f'--config={file.name}', '--', *words],
      stdout=subprocess.PIPE,
      check=False,
    )
  if done.returncode:
    # It says which task did not start, and why.
    output.warn([remote.clean(done.stdout)])
    return exit_codes.as_shell(done.returncode)
  folder = f'{config.workspace}/{name}'
  state = [*program, f'--config={folder}/config_dist.sh', '--status']
  stop = [os.path.join(values.scripts, 'kill_local.sh'), folder]
  output.say(f'started; logs and checkpoints: {folder}')
  output.say(f'state: {shlex.join(state)}')
  output.say(f'stop:  {shlex.join(stop)}')
  return command.DONE


def _launch() -> list[str]:
  """Returns the words of `terngrad launch`, next to this interpreter.

  With `-m`, which is left where it is not installed, modules of the working
  directory are found first.
  """
  installed = pathlib.Path(sys.executable).with_name('terngrad')
  if installed.exists():
    return [str(installed), 'launch']
  return command.line_of('launch')


def _network(config: configuration.Configuration) -> list[str]:
  """Returns the command prefix for a network namespace, or [] without one."""
  up = ('ip', 'link', 'set', 'lo', 'up')
  if shutil.which(_NETWORK[0]):
    tried = subprocess.run([*_NETWORK, *up], capture_output=True, check=False)
    if not tried.returncode:
      inner = f'{shlex.join(up)} && exec "$@"'
      return [*_NETWORK, 'bash', '-c', inner, 'bash']
  ports = ', '.join(map(addresses.port, config.all_addresses))
  output.warn(
    [
      'launch: no private network: expected unshare --net and ip to work; the '
      f'ports {ports} are open to the network of this machine'
    ]
  )
  return []
