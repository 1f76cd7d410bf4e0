"""The tasks of a run: role, host and command of each."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from terngrad.launching import addresses
from terngrad.launching import configuration


class LaunchTask(NamedTuple):
  """One parameter server or worker.

  Attributes:
    name: such as 'ps_0' or 'worker_1'.
    address: 'host:port'.
    devices: its GPUs, such as '0,1'; '' for none.
    data: folder of its data; '' for none.
    command: the program and its arguments.
    is_python: True if the program is the Python interpreter, which sees all
      GPUs of the host.
  """

  name: str
  address: str
  devices: str
  data: str
  command: tuple[str, ...]
  is_python: bool = False

  @property
  def line(self) -> str:
    """The command with the host in front, for printing."""
    where = f'{self.name} on {addresses.host(self.address)}'
    return f'{where}: {shlex.join(self.command)}'

  def resume(self) -> 'LaunchTask':
    """Returns the task that continues this one from its last checkpoint."""
    if not self.name.startswith('worker_'):
      # Parameter servers have no checkpoints.
      return self
    # The last of repeated flags counts; --overwrite would delete checkpoints.
    return self._replace(command=(*self.command, '--overwrite=false'))


def join_addresses(hosts: Sequence[str], tunnel: bool) -> str:
  """Joins addresses with commas, as tasks take them; loopback with tunnels."""
  if tunnel:
    hosts = [f'127.0.0.1:{addresses.port(each)}' for each in hosts]
  return ','.join(hosts)


def script_tasks(
  config: configuration.Configuration,
  experiment: str,
  tunnel: bool,
  flags: Sequence[str],
) -> list[LaunchTask]:
  """Makes tasks that run scripts with the arguments of the 2017 code.

  Parameter servers come first. `flags` are further arguments of the workers.
  """
  listed = config.ps_hosts, config.worker_hosts
  hosts = tuple(join_addresses(each, tunnel) for each in listed)
  insecure = config.allow_insecure_network == 'true' and not tunnel
  vouched = ('--allow_insecure_network',) if insecure else ()
  servers = [
    LaunchTask(
      f'ps_{i}',
      address,
      '',
      '',
      (config.ps_script, *hosts, 'ps', str(i), experiment, *vouched),
    )
    for i, address in enumerate(config.ps_hosts)
  ]
  workers = [
    LaunchTask(
      f'worker_{i}',
      address,
      devices,
      data,
      (config.worker_script, *hosts, 'worker', str(i), devices, data)
      + (experiment, *vouched, *flags),
    )
    for i, (address, devices, data) in enumerate(
      zip(
        config.worker_hosts,
        config.worker_devices,
        config.data_dirs,
        strict=True,
      )
    )
  ]
  return servers + workers
