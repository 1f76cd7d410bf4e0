"""The flags of `terngrad launch` for several machines."""

import dataclasses
import pathlib
from collections.abc import Sequence

from terngrad.cli import flags
from terngrad.config import options

USAGE = """\

On several machines:

  {program} --config=config_dist.sh [--check] [-- --grad_bits=1 ...]
  {program} --config=config_dist.sh --status
  {program} --config=config_dist.sh --stop [--seconds=60]
  {program} --hosts=node1,node2 --workspace=~/results \\
      --allow_insecure_network -- train mnist --data_dir=D --train_dir=T ...

starts each task on its host over ssh, and returns. First it checks on every
host whether its tasks can start; if one cannot, none is started. All hosts need
the same project and interpreter at the same path. --config names a file of
hosts and folders like scripts/config_dist.sh, which is read and never executed;
flags after `--` are passed to all workers, after those of WORKER_SCRIPT. With
--hosts the command after `--` is the task, one per host. Logs, PID files and
checkpoints are in WORKSPACE/ID of each host: ps_0.log, worker_0.log, and
worker_0/ for the checkpoints of a configuration's chief.

Exit code 2: refused before anything was started. Exit code 1: a task did not
start, and the started ones were stopped; with --status, not all tasks run; with
--stop, a host could not be reached. --stop ends only the processes of one
experiment: those that its PID files name, if they still are these processes.
Tunnels end last, on the machine that opened them.

With --restart the exit code is that of the run: 0, all tasks finished; 75, a
task was lost, and no restart was left or possible; 143, the run was stopped; 1,
2 and others, the exit code of a failed task, whose log says why. Failed tasks
are not restarted. A signal to this program ends the tasks, with exit code 128 +
its number.
"""

# Defaults that are no file name, experiment name or number of restarts.
NO_FILE, BY_TIME, NEVER = '(none)', '(by time)', 'none'
# The default of --rank.
EVERY_RANK = -1
# Flags whose values the file of --config sets.
_IN_FILE = ('num_workers', 'num_ps', 'workspace', 'allow_insecure_network')
WORKER_PORT, PS_PORT = 2224, 2222


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostFlags:
  """The flags for several machines."""

  config: str = options.option(
    NO_FILE,
    'File of hosts and folders, such as scripts/config_dist.sh.',
    'cluster',
  )
  hosts: tuple[str, ...] = options.option(
    (),
    'Instead of --config: the host of each worker, or host:port (default port '
    f'{WORKER_PORT}). The --num_ps servers run on the first hosts, at port '
    f'{PS_PORT}.',
    'cluster',
  )
  rank: int = options.option(
    EVERY_RANK,
    'With --hosts: index of this host. Starts its worker only, and nothing by '
    'ssh; run the same command once on each host.',
    'cluster',
  )
  workspace: str = options.option(
    '',
    'With --hosts: a folder that exists on all hosts, for logs and PID files; '
    '~/ is the home folder on each host.',
    'cluster',
  )
  allow_insecure_network: bool = options.option(
    False,
    "With --hosts: confirms that nobody else can connect to the hosts' ports, "
    'since the servers have no authentication (docs/security.md).',
    'cluster',
  )
  experiment: str = options.option(
    BY_TIME,
    'Name of the folder in WORKSPACE; the name of an earlier run continues it. '
    'Default: the time; with --status and --stop, the experiment started last.',
    'cluster',
  )
  restart: str = options.option(
    NEVER,
    'Largest number of restarts; waits until the run ends, also with 0. If a '
    'task is killed, or loses another one, all tasks are stopped and started '
    'again from the last checkpoint. Before that, the others have '
    'TERNGRAD_SETTLE_SECONDS (30) to end; if one of them fails, nothing is '
    'restarted.',
    'cluster',
  )
  split_dataset: str = options.option(
    '',
    'With a --config whose tasks are all on this machine: a converted data '
    'set, which scripts/split_dataset.sh splits between the workers. It '
    'replaces DATA_DIR, and --workspace replaces WORKSPACE. The tasks get a '
    'private network, if the kernel allows it.',
    'cluster',
  )
  worker_devices: str = options.option(
    '',
    "With --split_dataset: the GPUs of each worker, such as '0 1' or '0,1 "
    "2,3'; '' for none.",
    'cluster',
  )
  tunnel: bool = options.option(
    False,
    'Tunnel the traffic between tasks by ssh through this machine, so that '
    'hosts need no private network; implies --restart=0.',
    'cluster',
  )
  check: bool = options.option(
    False,
    'Check the hosts and start nothing; also print the versions and GPUs of '
    'each task, and refuse different versions and missing GPUs; with --tunnel, '
    'open every tunnel and close it again.',
    'cluster',
  )
  status: bool = options.option(
    False, 'Print which tasks run; exit code 1 unless all do.', 'cluster'
  )
  dry_run: bool = options.option(
    False, 'Print each host and command; connect to no host.', 'cluster'
  )
  stop: bool = options.option(
    False, 'End the tasks of an experiment on all hosts.', 'cluster'
  )
  seconds: str = options.option(
    '60',
    'With --stop: seconds after which tasks that have not ended are killed. '
    'The chief saves a checkpoint before it ends.',
    'cluster',
  )
  scripts: str = options.option(
    str(pathlib.Path(__file__).resolve().parents[2] / 'scripts'),
    'Folder of WORKER_SCRIPT and PS_SCRIPT, if these are names without a path, '
    'and of the scripts that run on hosts; the same path on all hosts.',
    'cluster',
  )


def uses_hosts(values: HostFlags) -> bool:
  """Returns whether the flags ask for a run on several machines.

  Raises:
    terngrad.cli.flags.UsageError: flags for several machines are incomplete,
      or a flag would be ignored.
  """
  from_file = values.config != NO_FILE
  if from_file and values.hosts:
    raise flags.UsageError(
      'Expected --config or --hosts, received both. Leave one out.'
    )
  is_remote = from_file or bool(values.hosts)
  changed = _changed(values, HostFlags)
  if changed and not is_remote:
    raise flags.UsageError(
      f'--{changed[0]}: expected --config=FILE or --hosts=A,B beside it, '
      'received neither. See --help.'
    )
  if is_remote and 'seconds' in changed and not values.stop:
    raise flags.UsageError(
      '--seconds: expected --stop beside it, received none. Leave it out.'
    )
  _check_rank(values, changed)
  _check_split(values, changed)
  extra = [name for name in _changed(values, type(values)) if name in _IN_FILE]
  if values.split_dataset and 'workspace' in extra:
    extra.remove('workspace')
  if from_file and extra:
    raise flags.UsageError(
      f'--{extra[0]}: expected none beside --config, whose file sets it, '
      f'received {getattr(values, extra[0])!r}. Set it in the file.'
    )
  return is_remote


def _check_rank(values: HostFlags, changed: Sequence[str]) -> None:
  """Refuses an invalid --rank, and flags that would be ignored with it."""
  if values.rank == EVERY_RANK:
    return
  if not 0 <= values.rank < len(values.hosts):
    raise flags.UsageError(
      f'--rank: expected the index of one of {len(values.hosts)} --hosts, '
      f'received {values.rank}. The first host has --rank=0.'
    )
  known = ('hosts', 'rank', 'allow_insecure_network')
  for name in _changed(values, type(values)):
    if name not in (*known, 'command'):
      raise flags.UsageError(
        f'--{name}: expected none beside --rank, received '
        f'{getattr(values, name)!r}. Leave it out.'
      )


def _check_split(values: HostFlags, changed: Sequence[str]) -> None:
  """Refuses flags that would be ignored with or without --split_dataset."""
  if values.split_dataset and values.config == NO_FILE:
    raise flags.UsageError(
      '--split_dataset: expected --config=FILE beside it, received none. See '
      '--help.'
    )
  folder = values.split_dataset
  for name in ('restart', 'tunnel') if folder else ('worker_devices',):
    if name in changed:
      raise flags.UsageError(
        f'--{name}: expected {"no" if folder else "a"} --split_dataset beside '
        f'it, received {folder or "none"}. Leave --{name} out.'
      )


def _changed(values: HostFlags, flags_class: type[HostFlags]) -> list[str]:
  """Returns the names of a class's flags that differ from their defaults."""
  return [
    o.name
    for o in options.fields(flags_class)
    if getattr(values, o.name) != o.default
  ]
