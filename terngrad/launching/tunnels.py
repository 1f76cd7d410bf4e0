"""SSH tunnels between hosts without a common private network.

All tasks get the same addresses: 127.0.0.1 and the port of each task. One ssh
connects this machine to each host. It forwards the ports of that host's tasks
to this machine (-L) and the ports of all other tasks to the host (-R). Hosts
need no keys of each other, and all traffic between tasks passes through this
machine.
"""

import pathlib
import re
import shlex
import tempfile

from terngrad.cluster import spec
from terngrad.launching import addresses
from terngrad.launching import configuration
from terngrad.launching import remote

# -f: ssh goes to the background once all forwards are open. -M: the process in
# the background then reports its PID.
_OPTIONS = ('-f', '-N', '-M', '-o', 'ExitOnForwardFailure=yes')
_PID = re.compile(r'pid=([1-9][0-9]{0,9})')
# Seconds that a tunnel has to end.
_GRACE = '5'


def check(config: configuration.Configuration) -> None:
  """Checks that no two tasks have the same port, on whatever host.

  Raises:
    terngrad.errors.ConfigError: two tasks do.
  """
  known: dict[str, str] = {}
  for address in config.all_addresses:
    port = addresses.port(address)
    if port in known:
      raise config.refusal(
        'with --tunnel a different port for each task, even on other hosts',
        f'{address} and {known[port]}',
        'give each task a different port',
      )
    known[port] = address


class Tunnels:
  """The tunnels of an experiment.

  Their PID files and logs are in the experiment's folder on this machine.
  """

  def __init__(
    self,
    config: configuration.Configuration,
    hosts: remote.Hosts,
    folder: pathlib.Path,
  ) -> None:
    """Opens nothing yet; `folder` is that of the experiment."""
    self._config = config
    self._hosts = hosts
    self._folder = folder / 'tunnels'

  @property
  def remote_hosts(self) -> list[str]:
    """The hosts other than this machine."""
    return [
      host
      for host, address in self._config.hosts.items()
      if not spec.is_loopback(address)
    ]

  def line(self, host: str) -> str:
    """Formats the ssh command of a tunnel for printing."""
    words = (*remote.SSH, *_OPTIONS, *self._forwards(host), '--', host)
    return f'tunnel to {host}: {shlex.join(words)}'

  def open(self, host: str) -> remote.CallResult:
    """Opens the tunnel to a host; writes tunnel_HOST.pid and .log."""
    # Not later: without the PID file nothing could close the tunnel.
    self._hosts.check()
    self._folder.mkdir(parents=True, exist_ok=True)
    log = self._folder / f'tunnel_{host}.log'
    process = ''
    # No other process may control this ssh. The path of a socket must be short.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
      socket = ('-S', f'{folder}/s')
      try:
        status = self._connect(host, log, socket)
        process = '' if status else self._record(host, socket)
        received = remote.clean(log.read_bytes()) or f'status {status}'
      except OSError as error:
        received = str(error)
      finally:
        if not process:
          _control('exit', host, socket)
    if process:
      return remote.CallResult(
        True, [f'tunnel to {host}: open (process {process})']
      )
    return remote.CallResult(
      False,
      [
        f'tunnel to {host}: expected: the forwards that --dry_run prints',
        f'received: {received}',
        'remedy: free these ports there, and allow forwarding in its sshd '
        '(AllowTcpForwarding)',
      ],
    )

  def try_open(self, host: str) -> remote.CallResult:
    """Opens the tunnel to a host, closes it and waits for its end."""
    # In a temporary folder, outside of any experiment.
    with tempfile.TemporaryDirectory() as folder:
      other = Tunnels(self._config, self._hosts, pathlib.Path(folder))
      try:
        result = other.open(host)
      finally:
        other.close()
    if not result.ok:
      return result
    return remote.CallResult(True, [f'tunnel to {host}: can be opened'])

  def close(self) -> list[str]:
    """Closes the open tunnels; returns lines to print."""
    if not list(self._folder.glob('*.pid')):
      return []
    return self._hosts.call_local('stop_tasks', str(self._folder), _GRACE).lines

  def status(self) -> remote.CallResult:
    """Checks each tunnel; `ok` is False unless all of them run."""
    ok, lines = True, []
    for file in sorted(self._folder.glob('tunnel_*.pid')):
      host = file.stem.removeprefix('tunnel_')
      found = self._hosts.call_local('leader', str(file))
      if found.ok:
        how = f'running (process {found.text})'
      else:
        ok, how = False, f'ended, log {file.with_suffix(".log")}'
      lines.append(f'tunnel to {host}: {how}')
    return remote.CallResult(ok, lines)

  def _connect(
    self, host: str, log: pathlib.Path, socket: tuple[str, ...]
  ) -> int:
    """Starts ssh, which stays in the background; returns its exit code."""
    log.write_bytes(b'')
    try:
      # -E: the process in the background logs why it ended and what it cannot
      # forward. To a file, because the process would hold a pipe open.
      with log.open('ab') as output:
        return remote.run(
          (*remote.SSH, *_OPTIONS, *socket, '-E', str(log))
          + (*self._forwards(host), '--', host),
          stdout=output,
        ).returncode
    except OSError as error:
      log.write_text(f'{remote.cannot_start("ssh", error)}\n')
      return remote.NOT_STARTED

  def _record(self, host: str, socket: tuple[str, ...]) -> str:
    """Writes the PID file; returns the PID, '' if ssh does not report it."""
    found = _PID.search(_control('check', host, socket))
    if not found:
      return ''
    identity = self._hosts.call_local('identity', found[1])
    if not identity.ok:
      return ''
    file = self._folder / f'tunnel_{host}.pid'
    file.write_text(f'{identity.text}\n')
    return found[1]

  def _forwards(self, host: str) -> list[str]:
    """Makes the -L and -R options for the ssh to a host."""
    words = []
    for address in self._config.all_addresses:
      port = f'127.0.0.1:{addresses.port(address)}'
      local = addresses.host(address) == host
      words += ['-L' if local else '-R', f'{port}:{port}']
    return words


def _control(command: str, host: str, socket: tuple[str, ...]) -> str:
  """Sends a command to an ssh in the background; returns the answer."""
  try:
    done = remote.run(('ssh', *socket, '-O', command, '--', host))
  except OSError:
    return ''
  return remote.clean(done.stdout)
