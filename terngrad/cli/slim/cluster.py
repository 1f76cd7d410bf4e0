"""Translates TF-Slim's flags for several machines to runs of this package.

TF-Slim takes the numbers of tasks and reaches the tasks through --master. In
this package every task knows the hosts of all tasks. The numbers are therefore
checked against `--worker_hosts` and `--ps_hosts`, or the resolver in
`--cluster`.
"""

from typing import Any
from typing import NamedTuple

from terngrad.cli import flags
from terngrad.config import cluster
from terngrad.config import options
from terngrad.config import servers
from terngrad.config import training as configs


class RunKind(NamedTuple):
  """The kind of run that the flags describe.

  Attributes:
    config_class: class of the run's configuration.
    fields: values of fields that TF-Slim's flags set in another form.
    processes: number of processes that divide the configuration's
      `batch_size`.
  """

  config_class: type[configs.TrainConfig]
  fields: dict[str, Any]
  processes: int


def run_kind(values: Any) -> RunKind:
  """Determines the kind of run that TF-Slim's flags describe.

  With parameter servers: a run with servers, synchronous with --sync_replicas.
  Without servers: collectives between workers, which are synchronous. One
  worker without servers: the towers of one process.

  Args:
    values: dataclass of TF-Slim's flags and the configuration's.

  Raises:
    flags.UsageError: flags contradict each other or are not supported.
  """
  workers = values.worker_replicas
  is_one_task = workers == 1 and not values.num_ps_tasks
  for name, least in (('worker_replicas', 1), ('num_ps_tasks', 0)):
    if getattr(values, name) < least:
      raise flags.UsageError(
        f'--{name}: expected a number >= {least}, received '
        f'{getattr(values, name)}. Set --{name}={least} or more.'
      )
  if is_one_task:
    _check_one_task(values)
  tasks = values.num_ps_tasks if values.job_name == 'ps' else workers
  if not 0 <= values.task < tasks:
    raise flags.UsageError(
      f'--task: expected a {values.job_name} task from 0 to {tasks - 1}, '
      f'received {values.task}. Set --task to the index of this host in '
      f'--{values.job_name}_hosts.'
    )
  if values.num_ps_tasks:
    fields: dict[str, Any] = {'sync': values.sync_replicas}
    if values.sync_replicas:
      fields['num_replicas_to_aggregate'] = values.replicas_to_aggregate
    return RunKind(servers.ServerConfig, fields, 1)
  if values.replicas_to_aggregate != workers:
    raise flags.UsageError(
      f'--replicas_to_aggregate: expected all {workers} of --worker_replicas, '
      'because without parameter servers every step waits for all; received '
      f'{values.replicas_to_aggregate}. Use --replicas_to_aggregate={workers}.'
    )
  if is_one_task:
    return RunKind(configs.TrainConfig, {}, 1)
  if not values.sync_replicas:
    raise flags.UsageError(
      f'--sync_replicas: expected True for --worker_replicas={workers} without '
      'parameter servers, received False. Give --sync_replicas, or '
      '--num_ps_tasks=1 for workers that do not wait for each other.'
    )
  return RunKind(configs.TrainConfig, {'exchange': cluster.COLLECTIVE}, workers)


def check_numbers(values: Any, config: configs.TrainConfig) -> None:
  """Compares the numbers of tasks with the numbers of hosts.

  Args:
    values: the flags, as for `run_kind`.
    config: the configuration made from them.

  Raises:
    flags.UsageError: the numbers differ.
    terngrad.errors.ConfigError: hosts are missing or invalid.
  """
  tasks = config.cluster.tasks
  jobs = tasks.jobs if tasks else {}
  for name, job in (('worker_replicas', 'worker'), ('num_ps_tasks', 'ps')):
    received = getattr(values, name)
    if jobs and received != len(jobs.get(job, ())):
      raise flags.UsageError(
        f'--{name}: expected {len(jobs.get(job, ()))}, the number of hosts in '
        f'--{job}_hosts; received {received}. Correct one of the two.'
      )


def _check_one_task(values: Any) -> None:
  """Refuses cluster flags for one worker without parameter servers."""
  for name in ('worker_hosts', 'ps_hosts', 'cluster', 'job_name', 'task'):
    if not options.is_default(values, name):
      raise flags.UsageError(
        f'--{name}: expected it to be left out of a run on one machine, '
        f'received {getattr(values, name)}. Give the number of tasks by '
        '--worker_replicas and --num_ps_tasks; use --num_clones for more '
        'devices of this machine.'
      )
