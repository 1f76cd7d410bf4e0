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

# Defaults that are no file name, experiment name or number of restarts.
NO_FILE, BY_TIME, NEVER = '(none)', '(by time)', 'none'
# The default of --rank.
EVERY_RANK = -1
# Flags whose values the file of --config sets.
_IN_FILE = ('num_workers', 'num_ps', 'workspace', 'allow_insecure_network')
WORKER_PORT, PS_PORT = 2224, 2222


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hosts:
  """The flags for several machines."""

  config: str = options.option(
    NO_FILE,
    'File of hosts and folders, such as scripts/config_dist.sh.',
    'cluster',
  )
  hosts: tuple[str, ...] = options.option(
    (),
    'In place of --config: the host of each worker, or host:port '
    f'({WORKER_PORT} where none is given). --num_ps servers are on the first '
    f'ones, at port {PS_PORT}.',
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
    BY_TIME,
    'Names the folder in WORKSPACE. That of an earlier run continues it. The '
    'default is the time; with --status and --stop, what was started last.',
    'cluster',
  )
  restart: str = options.option(
    NEVER,
    'A number: stay until the run ends. Where a task was killed, or lost '
    'another one, stop all and start all again, from the last checkpoint; so '
    'often at most, 0 for never. First the others have '
    'TERNGRAD_SETTLE_SECONDS (30) to end: where one of them fails, that '
    'decides.',
    'cluster',
  )
  split_dataset: str = options.option(
    '',
    'With --config, of tasks on this machine: a converted data set, which '
    'scripts/split_dataset.sh splits between the workers. It replaces '
    'DATA_DIR. The tasks get a network that no one else reaches, where the '
    'kernel allows it. '
    "--workspace then replaces the file's.",
    'cluster',
  )
  worker_devices: str = options.option(
    '',
    "With --split_dataset: the GPUs of each worker, as '0 1' or '0,1 2,3'; '' "
    'for none.',
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
  wanted = from_file or bool(values.hosts)
  changed = _changed(values, Hosts)
  if changed and not wanted:
    raise flags.UsageError(
      f'--{changed[0]}: expected --config=FILE or --hosts=A,B beside it, '
      'received neither. See --help.'
    )
  if wanted and 'seconds' in changed and not values.stop:
    raise flags.UsageError(
      '--seconds: expected --stop beside it, received none. Leave it out.'
    )
  _check_rank(values, changed)
  _check_deal(values, changed)
  said = [name for name in _changed(values, type(values)) if name in _IN_FILE]
  if values.split_dataset and 'workspace' in said:
    said.remove('workspace')
  if from_file and said:
    raise flags.UsageError(
      f'--{said[0]}: expected none beside --config, whose file says it, '
      f'received {getattr(values, said[0])!r}. Write it into the file.'
    )
  return wanted


def _check_rank(values: Hosts, changed: Sequence[str]) -> None:
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


def _check_deal(values: Hosts, changed: Sequence[str]) -> None:
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
        f'it, received {folder or "none"}. Leave one out.'
      )


def _changed(values: Hosts, known: type[Hosts]) -> list[str]:
  """Returns the names of a class's flags that differ from their defaults."""
  return [
    o.name
    for o in options.fields(known)
    if getattr(values, o.name) != o.default
  ]
