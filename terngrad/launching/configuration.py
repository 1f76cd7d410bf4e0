"""The hosts and folders of a run's tasks, and the checks of their values."""

import dataclasses
import os
import re
from typing import Any

from terngrad import errors
from terngrad.cluster import spec
from terngrad.launching import addresses
from terngrad.launching import config_file
from terngrad.launching import refusals

# Variables of the file with the fields of `Configuration`.
LISTS = {
  'PS_HOSTS': 'ps_hosts',
  'WORKER_HOSTS': 'worker_hosts',
  'WORKER_DEVICES': 'worker_devices',
  'DATA_DIR': 'data_dirs',
}
WORDS = {
  'WORKER_SCRIPT': 'worker_script',
  'PS_SCRIPT': 'ps_script',
  'WORKSPACE': 'workspace',
  'ALLOW_INSECURE_NETWORK': 'allow_insecure_network',
}
_DEVICES = re.compile(r'([0-9]{1,4}(,[0-9]{1,4})*)?')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
  """The hosts and folders of the tasks of a run.

  Attributes:
    source: path of the file or name of the flags, for messages.
    ps_hosts: 'host:port' of each parameter server; () for collectives.
    worker_hosts: 'host:port' of each worker, one or more.
    worker_devices: GPUs of each worker, such as '0,1'; '' for none.
    data_dirs: folder of each worker's data; '' for none.
    worker_script: path of the program that runs one worker.
    ps_script: path of the program that runs one parameter server.
    workspace: folder on all hosts that has the folders of experiments.
    allow_insecure_network: 'true' or 'false'. 'true' states that only the
      run's hosts reach their network.
  """

  source: str
  ps_hosts: tuple[str, ...]
  worker_hosts: tuple[str, ...]
  worker_devices: tuple[str, ...]
  data_dirs: tuple[str, ...]
  worker_script: str
  ps_script: str
  workspace: str
  allow_insecure_network: str

  @property
  def all_addresses(self) -> tuple[str, ...]:
    """Addresses of all tasks, parameter servers first."""
    return (*self.ps_hosts, *self.worker_hosts)

  @property
  def hosts(self) -> dict[str, str]:
    """The first address on each host, by the name of the host."""
    found: dict[str, str] = {}
    for address in self.all_addresses:
      found.setdefault(addresses.host(address), address)
    return found

  def refusal(
    self, expected: str, received: str, remedy: str
  ) -> errors.ConfigError:
    """Makes the error for a value that cannot be used."""
    return refusals.refusal(
      f'cannot use {self.source}', expected, received, remedy
    )

  def text(self) -> str:
    """Formats the configuration as a file that `read` accepts."""
    return config_file.write(
      {name: getattr(self, field) for name, field in LISTS.items()},
      {name: getattr(self, field) for name, field in WORDS.items()},
    )


def expand_home(path: str) -> str:
  """Replaces ~/ at the beginning of a path by this host's home folder."""
  # Configurations do not support ~NAME/ of other users.
  return os.path.expanduser(path) if path.startswith('~/') else path


def read(path: str, scripts: str) -> Configuration:
  """Reads a file, checks its values and completes the paths of the programs.

  A program without a folder is in the folder `scripts`.

  Raises:
    terngrad.errors.ConfigError: there is no such file, or it has a value that
      cannot be used.
  """
  lists, words = config_file.read(path, tuple(LISTS), tuple(WORDS))
  values: dict[str, Any] = {field: lists[name] for name, field in LISTS.items()}
  values |= {field: words[name] for name, field in WORDS.items()}
  return validate(Configuration(source=path, **values), scripts)


def validate(config: Configuration, scripts: str) -> Configuration:
  """Checks all values and completes the paths of the programs.

  A program without a folder is in the folder `scripts`.

  Raises:
    terngrad.errors.ConfigError: a value cannot be used.
  """
  if config.allow_insecure_network not in ('true', 'false'):
    raise config.refusal(
      'ALLOW_INSECURE_NETWORK: true or false',
      config.allow_insecure_network,
      'write one of these',
    )
  _check_addresses(config)
  workers = len(config.worker_hosts)
  for name in ('WORKER_DEVICES', 'DATA_DIR'):
    count = len(getattr(config, LISTS[name]))
    if count != workers:
      raise config.refusal(
        f'{name}: one per worker, {workers}',
        str(count),
        'list as many as WORKER_HOSTS',
      )
  for devices in config.worker_devices:
    if not _DEVICES.fullmatch(devices):
      raise config.refusal(
        "WORKER_DEVICES: numbers of GPUs, or ''",
        devices,
        "write '0', '0,1' or ''",
      )
  for path in filter(None, config.data_dirs):
    _check_path(config, 'DATA_DIR', path)
  _check_path(config, 'WORKSPACE', config.workspace)
  programs: dict[str, Any] = {
    WORDS[name]: _program(config, name, scripts)
    for name in ('WORKER_SCRIPT', 'PS_SCRIPT')
  }
  return dataclasses.replace(config, **programs)


def _check_addresses(config: Configuration) -> None:
  """Checks that all addresses are valid and no two are equal."""
  if not config.worker_hosts:
    raise config.refusal('WORKER_HOSTS: one or more', 'none', 'list host:port')
  for address in config.all_addresses:
    if not addresses.is_valid(address):
      raise config.refusal(
        'host:port with a port from 1 to 65535',
        address,
        'write host.example:2222, or [2001:db8::1]:2222 for IPv6',
      )
  if pair := spec.find_equal(config.all_addresses):
    raise config.refusal(
      'every address once',
      ' and '.join(pair),
      'give each task a different port',
    )


def check_network(config: Configuration) -> None:
  """Checks that the hosts can reach each other and that this is allowed.

  Raises:
    terngrad.errors.ConfigError: localhost is mixed with other hosts, or there
      are other hosts without ALLOW_INSECURE_NETWORK=true.
  """
  local = [a for a in config.all_addresses if spec.is_loopback(a)]
  outside = [a for a in config.all_addresses if a not in local]
  if not outside:
    return
  if local:
    raise config.refusal(
      'names that all hosts can resolve, or localhost only',
      f'{local[0]} and {outside[-1]}',
      f"write this machine's name instead of {addresses.host(local[0])}",
    )
  if config.allow_insecure_network != 'true':
    raise config.refusal(
      'ALLOW_INSECURE_NETWORK=true for hosts other than localhost',
      f'{config.allow_insecure_network} with {outside[-1]}',
      'TensorFlow has no authentication: read docs/security.md first',
    )


def _check_path(config: Configuration, name: str, path: str) -> None:
  if not path.startswith(('/', '~/')):
    raise config.refusal(
      f'{name}: a path that begins with / or ~/',
      f"'{path}'",
      'write such a path: tasks have no common working directory',
    )


def _program(config: Configuration, name: str, scripts: str) -> str:
  path: str = getattr(config, WORDS[name])
  if not path or ('/' in path and path[0] not in '/~'):
    raise config.refusal(
      f'{name}: a file name, or a path that begins with / or ~/',
      f"'{path}'",
      "write the script's full path",
    )
  path = path if '/' in path else f'{scripts}/{path}'
  _check_path(config, name, path)
  return path
