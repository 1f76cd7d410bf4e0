"""The part of `terngrad launch` that starts tasks on several machines."""

import dataclasses
import pathlib
import sys
from collections.abc import Sequence

from terngrad.cli import flags
from terngrad.config import options
from terngrad.launching import configuration
from terngrad.launching import launcher
from terngrad.launching import refusals
from terngrad.launching import tasks as tasks_lib

USAGE = """\

On several machines:

  {program} --config=config_dist.sh [--check] [-- --grad_bits=1 ...]
  {program} --config=config_dist.sh --status
  {program} --config=config_dist.sh --stop [--seconds=60]
  {program} --hosts=node1,node2 --workspace=~/results \\
      --allow_insecure_network -- train mnist --data_dir=D --train_dir=T ...

starts each task on its host, by ssh, and returns. First it asks every host
whether its tasks can start; where one cannot, none is started. Hosts have the
same project and interpreter at the same path. --config names a file of hosts
and folders like scripts/config_dist.sh, which is read and never executed; flags
behind `--` go to all workers, after those of WORKER_SCRIPT. With --hosts the
command behind `--` is the task, one a host. Logs, PID files and checkpoints are
in WORKSPACE/ID of each host: ps_0.log, worker_0.log, and worker_0/ for the
checkpoints of a configuration's chief.

Status 2: refused before anything was started. Status 1: a task did not start,
and those that did were stopped; of --status, not all run; of --stop, a host
could not be reached. --stop ends what was started for one experiment and
nothing else: what the PID files name, if it still is that process; tunnels end
last, on the machine that opened them.

With --restart the status is that of the run: 0 all tasks came to their end; 75
one was lost, and there was no restart left or possible; 143 somebody stopped
it; 1, 2 and others: that of a task that failed, whose log says why. These are
not restarted. A signal to this program ends the tasks: 128 and its number.
"""

# No name of an experiment, and no number of restarts.
_BY_TIME, _NEVER = '(by time)', 'none'
_WORKER_PORT, _PS_PORT = 2224, 2222


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hosts:
  """The flags about several machines."""

  config: str = options.option(
    '', 'File of hosts and folders, such as scripts/config_dist.sh.', 'cluster'
  )
  hosts: tuple[str, ...] = options.option(
    (),
    'In place of --config: the host of each worker, or host:port '
    f'({_WORKER_PORT} where none is given). --num_ps servers are on the first '
    f'ones, at port {_PS_PORT}.',
    'cluster',
  )
  workspace: str = options.option(
    '',
    'With --hosts: a folder that exists on all hosts, for logs and PID files. '
    "~/ begins one in each host's home.",
    'cluster',
  )
  allow_insecure_network: bool = options.option(
    False,
    "With --hosts: promises that nobody else reaches the hosts' ports, whose "
    'servers have no authentication (docs/security.md).',
    'cluster',
  )
  experiment: str = options.option(
    _BY_TIME,
    'Names the folder in WORKSPACE. That of an earlier run continues it. The '
    'default is the time; with --status and --stop, what was started last.',
    'cluster',
  )
  restart: str = options.option(
    _NEVER,
    'A number: stay until the run ends. Where a task was killed, or lost '
    'another one, stop all and start all again, from the last checkpoint; so '
    'often at most, 0 for never. First the others have '
    'TERNGRAD_SETTLE_SECONDS (30) to end: where one of them fails, that '
    'decides.',
    'cluster',
  )
  tunnel: bool = options.option(
    False,
    'Carry what tasks say to each other by ssh through this machine, so that '
    'hosts need no private network; implies --restart=0.',
    'cluster',
  )
  check: bool = options.option(
    False,
    'Ask the hosts and start nothing; also print the versions and GPUs that '
    'each task would have, and refuse versions that differ and GPUs that are '
    'not there; with --tunnel, open every tunnel and close it again.',
    'cluster',
  )
  status: bool = options.option(
    False, 'Say which tasks run; the status is 1 unless all do.', 'cluster'
  )
  dry_run: bool = options.option(
    False, 'Print each host and command, and reach no host.', 'cluster'
  )
  stop: bool = options.option(
    False, 'End the tasks of an experiment on all hosts.', 'cluster'
  )
  seconds: str = options.option(
    '60',
    'With --stop: what has not ended then is killed. The chief saves a '
    'checkpoint when it is asked to end.',
    'cluster',
  )
  scripts: str = options.option(
    str(pathlib.Path(__file__).resolve().parents[2] / 'scripts'),
    'Folder of WORKER_SCRIPT and PS_SCRIPT that are names alone, and of what '
    'runs on hosts; at the same path on all of them.',
    'cluster',
  )


def is_asked(values: Hosts) -> bool:
  """Whether the flags are about several machines.

  Raises:
    terngrad.cli.flags.UsageError: only some of them are.
  """
  if values.config and values.hosts:
    raise flags.UsageError(
      'Expected --config or --hosts, received both. Leave one out.'
    )
  wanted = bool(values.config or values.hosts)
  changed = [
    o.name
    for o in options.fields(Hosts)
    if getattr(values, o.name) != o.default
  ]
  if changed and not wanted:
    raise flags.UsageError(
      f'--{changed[0]}: expected --config=FILE or --hosts=A,B beside it, '
      'received neither. See --help.'
    )
  return wanted


def launch(values: Hosts, command: tuple[str, ...], servers: int) -> int:
  """Does what the flags ask for on all hosts; returns the exit code.

  Args:
    values: the flags.
    command: words behind `--`.
    servers: how many parameter servers, with --hosts.

  Raises:
    terngrad.cli.flags.UsageError: flags contradict each other.
    terngrad.errors.ConfigError: a value, the configuration or a host is not as
      it must be; nothing was started.
  """
  named = values.experiment != _BY_TIME
  if named:
    refusals.check_experiment(values.experiment)
  restarts = None
  if values.restart != _NEVER:
    restarts = refusals.whole_number(
      'no number of restarts', 'restart', values.restart
    )
  seconds = refusals.whole_number('no time', 'seconds', values.seconds)
  action = _action(values)
  if values.config:
    config = configuration.read(values.config, values.scripts)
  else:
    config = _of_hosts(values, servers)

  def tasks(name: str) -> list[tasks_lib.Task]:
    if values.config:
      return tasks_lib.of_scripts(config, name, values.tunnel, command)
    if action in (launcher.STATUS, launcher.STOP):
      return tasks_lib.of_scripts(config, name, values.tunnel, ())
    return _of_command(config, values.tunnel, command)

  return launcher.run(
    launcher.Request(
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


def _action(values: Hosts) -> str:
  asked = [name for name in launcher.ACTIONS if getattr(values, name, False)]
  if len(asked) > 1:
    raise flags.UsageError(
      f'Expected one of --{", --".join(launcher.ACTIONS[1:])}, received '
      f'--{" and --".join(asked)}. Leave all but one out.'
    )
  return asked[0] if asked else launcher.START


def _of_hosts(values: Hosts, servers: int) -> configuration.Configuration:
  """The configuration that --hosts and --num_ps describe."""
  if not 0 <= servers <= len(values.hosts):
    raise flags.UsageError(
      f'--num_ps: expected 0 to {len(values.hosts)}, as many as --hosts, '
      f'received {servers}.'
    )
  workers = tuple(_address(each, _WORKER_PORT) for each in values.hosts)
  first = [each.rpartition(':')[0] for each in workers[:servers]]
  return configuration.checked(
    configuration.Configuration(
      source='--hosts',
      ps_hosts=tuple(f'{host}:{_PS_PORT}' for host in first),
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


def _address(host: str, port: int) -> str:
  return host if host.rpartition(':')[2].isdecimal() else f'{host}:{port}'


def assigned(
  command: Sequence[str], workers: str, servers: str
) -> list[tuple[str, int, list[str]]]:
  """Gives a training command to each process of a run.

  Args:
    command: words behind `terngrad`, 'train', 'mnist', ....
    workers: their addresses, with commas.
    servers: those of the parameter servers; '' for none.

  Returns:
    List of ('ps' or 'worker', number, words behind `terngrad`).

  Raises:
    terngrad.cli.flags.UsageError: the command is none that trains on several
      processes.
  """
  words = list(command)
  if words[:1] not in (['train'], ['distributed_train']) or 'slim' in words[:2]:
    raise flags.UsageError(
      'Expected `-- train DATASET --flag=value ...` behind the flags, received '
      f'{" ".join(words) or "nothing"!r}. See --help.'
    )
  given = [f'--worker_hosts={workers}']
  if servers:
    words[0] = 'distributed_train'
    given.append(f'--ps_hosts={servers}')
  else:
    words[0] = 'train'
    given.append('--exchange=collective')
  counts = {
    'ps': servers.count(',') + 1 if servers else 0,
    'worker': workers.count(',') + 1,
  }
  return [
    (job, index, [*words, *given, f'--job_name={job}', f'--task_id={index}'])
    for job, count in counts.items()
    for index in range(count)
  ]


def _of_command(
  config: configuration.Configuration, tunnel: bool, command: tuple[str, ...]
) -> list[tasks_lib.Task]:
  """The tasks that a command behind `--` stands for, one a host."""
  vouched = config.allow_insecure_network == 'true' and not tunnel
  found = assigned(
    command,
    tasks_lib.seen(config.worker_hosts, tunnel),
    tasks_lib.seen(config.ps_hosts, tunnel),
  )
  program = (config.worker_script, '-m', 'terngrad.cli.main')
  hosts = {'ps': config.ps_hosts, 'worker': config.worker_hosts}
  return [
    tasks_lib.Task(
      f'{job}_{index}',
      hosts[job][index],
      '',
      '',
      (*program, *words, *(['--allow_insecure_network'] if vouched else [])),
    )
    for job, index, words in found
  ]
