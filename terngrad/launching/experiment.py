"""An experiment: its tasks, their hosts and its folder on this machine."""

import pathlib
from collections.abc import Sequence

from terngrad.launching import addresses
from terngrad.launching import configuration
from terngrad.launching import output
from terngrad.launching import refusals
from terngrad.launching import remote
from terngrad.launching import tasks as tasks_lib
from terngrad.launching import tunnels as tunnels_lib

_LATEST = 'latest_experiment'
# Time limit of `report_versions`, whose import has 300 seconds.
_VERSIONS_SECONDS = 300 + remote.CALL_SECONDS


class Experiment:
  """The tasks of an experiment and the actions on them.

  Attributes:
    folder: of the experiment on all hosts; may begin with ~/.
    local_folder: the same folder on this machine.
    tunnel: True if the experiment uses `tunnels`.
  """

  def __init__(
    self,
    config: configuration.Configuration,
    name: str,
    tasks: Sequence[tasks_lib.LaunchTask],
    hosts: remote.Hosts,
    tunnel: bool = False,
  ) -> None:
    """Connects to no host yet."""
    self.config = config
    self.name = name
    self.tasks = list(tasks)
    self.folder = f'{config.workspace}/{name}'
    self.local_folder = pathlib.Path(configuration.expand_home(self.folder))
    self.tunnels = tunnels_lib.Tunnels(config, hosts, self.local_folder)
    self.tunnel = tunnel
    self._hosts = hosts

  def can_start(self, task: tasks_lib.LaunchTask) -> remote.CallResult:
    """Checks on its host whether a task can start."""
    return self._call(
      task, 'check_task', self.folder, task.name, task.command[0], task.data
    )

  def versions(
    self, task: tasks_lib.LaunchTask, python: str
  ) -> remote.CallResult:
    """Queries the versions and GPUs that a task would have on its host.

    `python` is the interpreter of tasks that are scripts.
    """
    words: tuple[str, ...] = (python, task.devices)
    if task.is_python:
      words = (task.command[0],)
    return self._call(
      task, 'report_versions', *words, seconds=_VERSIONS_SECONDS
    )

  def start(self, task: tasks_lib.LaunchTask) -> remote.CallResult:
    """Starts a task on its host."""
    return self._call(task, 'start_task', self.folder, task.name, *task.command)

  def status(self, task: tasks_lib.LaunchTask) -> remote.CallResult:
    """Queries the state of a task on its host."""
    return self._call(task, 'task_status', self.folder, task.name)

  def _call(
    self,
    task: tasks_lib.LaunchTask,
    function: str,
    *words: str,
    seconds: float = remote.CALL_SECONDS,
  ) -> remote.CallResult:
    return self._hosts.call(
      task.address, task.name, function, *words, seconds=seconds
    )

  def start_all(self, resumes: bool = False) -> bool:
    """Opens the tunnels and starts all tasks.

    Args:
      resumes: True continues from the last checkpoints, also with --overwrite.

    Returns:
      False if a task did not start.
    """
    hosts = self.tunnels.remote_hosts if self.tunnel else []
    opened = remote.each(self.tunnels.open, hosts, output.try_say)
    tasks = [task.resume() if resumes else task for task in self.tasks]
    return opened.ok and remote.each(self.start, tasks, output.try_say).ok

  def end_all(self, seconds: int) -> bool:
    """Ends all tasks, then their tunnels; returns True if it reached all hosts.

    Tasks that have not ended after `seconds` are killed. The chief is the first
    to get the signal: parameter servers serve until it has written its
    checkpoint, and it ends them.
    """

    def end(address: str) -> remote.CallResult:
      return self._hosts.call(
        address,
        self.name,
        'stop_tasks',
        self.folder,
        str(seconds),
        seconds=seconds + remote.CALL_SECONDS,
      )

    hosts = self.config.hosts
    chief = hosts[addresses.host(self.config.worker_hosts[0])]
    chief_first = dict.fromkeys([chief, *hosts.values()])
    ended = remote.each(end, chief_first, output.try_say)
    self.close_tunnels()
    return ended.ok

  def close_tunnels(self) -> None:
    """Closes the open tunnels."""
    output.try_say(*self.tunnels.close())

  def record(self) -> None:
    """Writes the files that --status and --stop read, on this machine.

    Raises:
      terngrad.errors.ConfigError: the files cannot be written.
    """
    new = self.local_folder / '.config_dist.sh'
    text = self.config.text().encode(errors='surrogateescape')
    try:
      self.local_folder.mkdir(parents=True, exist_ok=True)
      new.write_bytes(text)
      # The file may be the one that was read as configuration, so replace it
      # atomically.
      new.replace(self.recorded)
      (self.local_folder.parent / _LATEST).write_text(f'{self.name}\n')
    except OSError as error:
      raise refusals.refusal(
        'nothing was started',
        f'to write the files of --status and --stop to {self.local_folder}',
        str(error),
        'give a WORKSPACE that is writable on this machine too',
      ) from error

  @property
  def recorded(self) -> pathlib.Path:
    """Path of the configuration in the experiment's folder."""
    return self.local_folder / 'config_dist.sh'


def latest(config: configuration.Configuration) -> str:
  """Reads the name of the experiment that this machine started last.

  Raises:
    terngrad.errors.ConfigError: there is none, or its name is not valid.
  """
  path = pathlib.Path(configuration.expand_home(config.workspace)) / _LATEST
  try:
    name = path.read_text(errors='replace').split('\n')[0].strip()
  except OSError as error:
    raise refusals.refusal(
      'no experiment',
      f'an experiment that this machine started, in {path}',
      'none',
      'give --experiment=ID',
    ) from error
  refusals.check_experiment(name)
  return name
