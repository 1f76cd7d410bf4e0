"""The part of `terngrad launch` that starts tasks on several machines."""

import sys
from collections.abc import Sequence

from terngrad.cli import flags
from terngrad.cli import launch_flags
from terngrad.cli import launch_local
from terngrad.cli import launch_program
from terngrad.cluster import spec
from terngrad.launching import configuration
from terngrad.launching import launcher
from terngrad.launching import refusals
from terngrad.launching import tasks as tasks_lib


def launch(
  values: launch_flags.HostFlags, command: tuple[str, ...], servers: int
) -> int:
  """Runs the requested action on all hosts; returns the exit code.

  Args:
    values: the flags.
    command: the arguments after `--`.
    servers: number of parameter servers, with --hosts.

  Raises:
    terngrad.cli.flags.UsageError: flags contradict each other.
    terngrad.errors.ConfigError: a value, the configuration or a host is
      invalid; nothing was started.
  """
  named = values.experiment != launch_flags.BY_TIME
  if named:
    refusals.check_experiment(values.experiment)
  restarts = None
  if values.restart != launch_flags.NEVER:
    restarts = refusals.whole_number(
      'no number of restarts', 'restart', values.restart
    )
  seconds = refusals.whole_number('invalid time', 'seconds', values.seconds)
  action = _action(values)
  # For running tasks, only the names and hosts matter.
  starts = action not in (launcher.STATUS, launcher.STOP)
  config = _configuration(values, command, servers, starts)

  def tasks(name: str) -> list[tasks_lib.LaunchTask]:
    if starts and values.config == launch_flags.NO_FILE:
      return _build_tasks(config, values.tunnel, command)
    return tasks_lib.script_tasks(config, name, values.tunnel, command)

  if values.split_dataset and action in (launcher.START, launcher.CHECK):
    code = launch_local.split(values, len(config.worker_hosts))
    if code or action == launcher.START:
      return code or launch_local.start(values, config, command)
  return launcher.run(
    launcher.LaunchRequest(
      config=config,
      tasks=tasks,
      scripts=values.scripts,
      action=action,
      experiment=values.experiment if named else '',
      restarts=restarts,
      seconds=seconds,
      tunnel=values.tunnel,
    )
  )


def _configuration(
  values: launch_flags.HostFlags,
  command: Sequence[str],
  servers: int,
  starts: bool,
) -> configuration.Configuration:
  """Returns the configuration of --config or --hosts.

  Args:
    values: the flags.
    command: the arguments after `--`.
    servers: number of parameter servers, with --hosts.
    starts: whether the action starts or checks tasks.
  """
  if values.config != launch_flags.NO_FILE:
    config = configuration.read(values.config, values.scripts)
    if values.split_dataset:
      config = launch_local.apply_flags(values, config)
    return config
  if starts:
    _refuse_program(command)
  config = _build_configuration(values, servers)
  if starts:
    check_network(values, config.all_addresses)
  return config


def _refuse_program(command: Sequence[str]) -> None:
  """Refuses a program, which is not started by ssh."""
  if launch_program.is_program(command):
    raise flags.UsageError(
      f'--rank: expected the index of this host beside --hosts and `-- '
      f'{command[0]} ...`, received none. Run the command once on each host, '
      'with --rank=0 on the first.'
    )


def _action(values: launch_flags.HostFlags) -> str:
  asked = [name for name in launcher.ACTIONS if getattr(values, name, False)]
  if len(asked) > 1:
    raise flags.UsageError(
      f'Expected one of --{", --".join(launcher.ACTIONS[1:])}, received '
      f'--{" and --".join(asked)}. Leave all but one out.'
    )
  return asked[0] if asked else launcher.START


def _build_configuration(
  values: launch_flags.HostFlags, servers: int
) -> configuration.Configuration:
  """Builds the configuration that --hosts and --num_ps describe."""
  if not 0 <= servers <= len(values.hosts):
    raise flags.UsageError(
      f'--num_ps: expected 0 to {len(values.hosts)}, the number of --hosts, '
      f'received {servers}. Use fewer, or more --hosts.'
    )
  if not values.workspace.startswith(('/', '~/')):
    raise flags.UsageError(
      '--workspace: expected a folder on all hosts, whose path begins with / '
      f'or ~/, received {values.workspace!r}. Give for example '
      '--workspace=~/results.'
    )
  workers = worker_addresses(values.hosts)
  first = [each.rpartition(':')[0] for each in workers[:servers]]
  return configuration.validate(
    configuration.Configuration(
      source='--hosts',
      ps_hosts=tuple(f'{host}:{launch_flags.PS_PORT}' for host in first),
      worker_hosts=workers,
      worker_devices=('',) * len(workers),
      data_dirs=('',) * len(workers),
      worker_script=sys.executable,
      ps_script=sys.executable,
      workspace=values.workspace,
      allow_insecure_network=str(values.allow_insecure_network).lower(),
    ),
    values.scripts,
  )


def check_network(values: launch_flags.HostFlags, hosts: Sequence[str]) -> None:
  """Refuses hosts on a network that others may reach, naming the flags."""
  outside = [each for each in hosts if not spec.is_loopback(each)]
  if outside and not (values.allow_insecure_network or values.tunnel):
    # With --rank nothing uses ssh, so there is no tunnel.
    choice, received = '--allow_insecure_network or --tunnel', 'neither'
    if values.rank != launch_flags.EVERY_RANK:
      choice, received = '--allow_insecure_network', 'none'
    raise flags.UsageError(
      f'--hosts: expected {choice} beside hosts other than localhost, received '
      f'{received} with {outside[0]}. TensorFlow has no authentication: read '
      'docs/security.md first.'
    )


def check_rank_hosts(values: launch_flags.HostFlags) -> tuple[str, ...]:
  """Returns the workers' addresses of --hosts beside --rank.

  Raises:
    terngrad.cli.flags.UsageError: an address is invalid or occurs twice, or
      others may reach the hosts' network.
  """
  found = worker_addresses(values.hosts)
  try:
    spec.make({'worker': found}, 'worker', values.rank)
  except spec.ClusterError as error:
    raise flags.UsageError(f'--hosts: {error}') from error
  check_network(values, found)
  return found


def worker_addresses(hosts: Sequence[str]) -> tuple[str, ...]:
  """Adds the port of workers to hosts without a port."""
  return tuple(
    host
    if host.rpartition(':')[2].isdecimal()
    else f'{host}:{launch_flags.WORKER_PORT}'
    for host in hosts
  )


def assign(
  command: Sequence[str], workers: str, servers: str
) -> list[tuple[str, int, list[str]]]:
  """Adds the cluster flags of each process to a training command.

  Args:
    command: the arguments of `terngrad`: 'train' or 'distributed_train',
      'mnist', ....
    workers: addresses of the workers, separated by commas.
    servers: addresses of the parameter servers, likewise; '' for none.

  Returns:
    List of ('ps' or 'worker', task index, arguments of `terngrad`).
  """
  words = list(command)
  added = [f'--worker_hosts={workers}']
  if servers:
    words[0] = 'distributed_train'
    added.append(f'--ps_hosts={servers}')
  else:
    words[0] = 'train'
    added.append('--exchange=collective')
  counts = {
    'ps': servers.count(',') + 1 if servers else 0,
    'worker': workers.count(',') + 1,
  }
  return [
    (job, index, [*words, *added, f'--job_name={job}', f'--task_id={index}'])
    for job, count in counts.items()
    for index in range(count)
  ]


def _build_tasks(
  config: configuration.Configuration, tunnel: bool, command: tuple[str, ...]
) -> list[tasks_lib.LaunchTask]:
  """Returns the tasks of the command after `--`, one per host."""
  is_insecure = config.allow_insecure_network == 'true' and not tunnel
  assigned = assign(
    command,
    tasks_lib.join_addresses(config.worker_hosts, tunnel),
    tasks_lib.join_addresses(config.ps_hosts, tunnel),
  )
  program = (config.worker_script, '-m', 'terngrad.cli.main')
  hosts = {'ps': config.ps_hosts, 'worker': config.worker_hosts}
  return [
    tasks_lib.LaunchTask(
      f'{job}_{index}',
      hosts[job][index],
      '',
      '',
      (*program, *words, *(['--allow_insecure_network'] * is_insecure)),
      is_python=True,
    )
    for job, index, words in assigned
  ]
