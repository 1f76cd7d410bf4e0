"""The tasks of a run: what each one is, where, and by which command."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from terngrad.launching import addresses
from terngrad.launching import configuration


class Task(NamedTuple):
  """One parameter server or worker.

  Attributes:
    name: such as 'ps_0' or 'worker_1'.
    address: 'host:port'.
    devices: its GPUs, '0,1'; '' for none.
    data: folder of its data; '' for none.
    command: the program and its arguments.
    is_python: whether the program is the interpreter, which gets all GPUs.
  """

  name: str
  address: str
  devices: str
  data: str
  command: tuple[str, ...]
  is_python: bool = False

  @property
  def line(self) -> str:
    """The command for people, with the host in front."""
    where = f'{self.name} on {addresses.host(self.address)}'
    return f'{where}: {shlex.join(self.command)}'


def seen(hosts: Sequence[str], tunnel: bool) -> str:
  """Addresses with commas, as the tasks get them: with tunnels, loopback."""
  if tunnel:
    hosts = [f'127.0.0.1:{addresses.port(each)}' for each in hosts]
  return ','.join(hosts)


def of_scripts(
  config: configuration.Configuration,
  experiment: str,
  tunnel: bool,
  flags: Sequence[str],
) -> list[Task]:
  """Tasks whose programs get the arguments of 2017; servers are the first.

  Args:
    config: the configuration.
    experiment: its name.
    tunnel: whether ssh carries what they say to each other.
    flags: further arguments of the workers.

  Returns:
    List of `Task`.
  """
  hosts = (seen(config.ps_hosts, tunnel), seen(config.worker_hosts, tunnel))
  insecure = config.allow_insecure_network == 'true' and not tunnel
  vouched = ('--allow_insecure_network',) if insecure else ()
  servers = [
    Task(
      f'ps_{i}',
      address,
      '',
      '',
      (config.ps_script, *hosts, 'ps', str(i), experiment, *vouched),
    )
    for i, address in enumerate(config.ps_hosts)
  ]
  workers = [
    Task(
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
