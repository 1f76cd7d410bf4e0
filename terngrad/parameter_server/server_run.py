"""The chief of a run with parameter servers.

The chief is worker 0 and the client of all tasks. It builds the model on every
worker, takes the steps, and is the only task that writes checkpoints and
records. Other tasks hold nothing that the checkpoints do not, so after a
failure all processes restart from the last checkpoint, even the chief's.
"""

import functools
import gc
import os
from collections.abc import Callable
from datetime import datetime

import tensorflow as tf

from slim import errors as data_errors
from terngrad import errors
from terngrad import signals
from terngrad.checkpoint import folder
from terngrad.cluster import coordination
from terngrad.cluster import devices
from terngrad.cluster import fingerprint
from terngrad.cluster import tasks
from terngrad.cluster import watchdog
from terngrad.config import options
from terngrad.config import servers
from terngrad.exchange import server as exchange
from terngrad.exchange import towers as tower_lib
from terngrad.parameter_server import async_run
from terngrad.parameter_server import server_context
from terngrad.parameter_server import server_feeds
from terngrad.parameter_server import server_tasks
from terngrad.tracking import trackers
from terngrad.training import assembly
from terngrad.training import batches
from terngrad.training import loop
from terngrad.training import start


class TaskLostError(errors.TrainingError):
  """Raised if a task is lost; the run can resume from its last checkpoint."""


def train(
  config: servers.ServerConfig,
  report: Callable[[str], None],
  show_progress: bool = False,
) -> loop.Outcome:
  """Trains as the chief until max_steps or a signal; resumes a run.

  If it raises, it orders the other tasks that answer to end. It does not if
  another process is the chief, if they belong to another run, or if a task is
  lost: then they wait for the chief's next start.

  Args:
    config: a validated configuration of the chief's task.
    report: called with each log line.
    show_progress: True draws a progress bar on the terminal.

  Raises:
    TaskLostError: another task is lost; restart the chief's process to resume.
    errors.ConfigError, slim.errors.DataError: the run cannot start.
    errors.TrainingError: the run had to stop; the last checkpoint is valid.
  """
  cluster = config.cluster.tasks
  others = tasks.servers_of(cluster)
  _check_no_other_chief(config)
  states: dict[tasks.Task, tasks.TaskState] = {}
  try:
    data = _prepare(config)
    states |= _wait_for(config, others, report)
    _compare(config, others, states)
    # Deletes old functions now: later TensorFlow would try to delete them on
    # the other tasks, which do not have them.
    gc.collect()
    with watchdog.limit(cluster, 2 * config.cluster.step_timeout, 'Start'):
      tasks.connect(cluster)
    outcome = _train(config, data, report, show_progress)
  except tasks.NotJoinedError as error:
    # The address belongs to another run, so its tasks must not be ended.
    raise errors.ConfigError(str(error)) from error
  except (errors.ConfigError, data_errors.DataError) as error:
    tasks.end_tasks(others, str(error), has_begun=False)
    raise
  except (tf.errors.OpError, tasks.LostError, errors.TrainingError) as error:
    trouble = _explain(others, states, error)
    tasks.end_tasks(others, trouble or str(error))
    if isinstance(error, errors.TrainingError) and not trouble:
      raise
    raise errors.TrainingError(trouble or str(error)) from error
  except signals.Interrupted:
    tasks.end_tasks(others)
    raise
  except BaseException as error:
    tasks.end_tasks(others, f'it raised {error!r}')
    raise
  # A silent task takes one of these calls.
  seconds = config.cluster.step_timeout + 2 * tasks.CALL_TIMEOUT
  with watchdog.limit(cluster, seconds, 'End'):
    # Lets TensorFlow delete its resources on the other tasks before they end.
    gc.collect()
    tasks.end_tasks(others)
  return outcome


def _prepare(config: servers.ServerConfig) -> batches.Data:
  """Checks options and chooses devices; returns the chief's examples."""
  options.folder('train_dir', config.run.train_dir)
  trackers.check_installed(config.run.log_to)
  # First, because TensorFlow accepts both only before it is initialized.
  devices.limit_threads(config.devices.threads)
  devices.tower_devices(config.devices.num_gpus)
  return server_tasks.open_part(config)


def _check_no_other_chief(config: servers.ServerConfig) -> None:
  """Checks that no other process is the chief of this run.

  Raises:
    errors.ConfigError: another process uses this task's port or train_dir.
  """
  coordination.check_port(config.cluster.tasks)
  if os.path.isdir(config.run.train_dir):
    with folder.lock(config.run.train_dir):
      pass


def _train(
  config: servers.ServerConfig,
  data: batches.Data,
  report: Callable[[str], None],
  show_progress: bool,
) -> loop.Outcome:
  cluster = config.cluster
  size, nodes = config.data.image_size, config.num_workers
  share = [nodes, config.data.batch_size // nodes]
  feeds = functools.partial(
    server_feeds.begin, cluster.tasks, [*share, size, size, data.channels]
  )
  devices = _device_names(config)
  layout = _layout(config, devices)
  context = (
    server_context.ServerContext(
      cluster, config.run, data, layout, feeds, devices
    )
    if cluster.waits_for_all
    else async_run.Asynchronous(
      cluster, config.run, config.model.seed, data, layout, feeds
    )
  )
  outcome = start.run_assembled(
    config.per_update(),
    functools.partial(assembly.assemble, context=context),
    report,
    show_progress,
    start=watchdog.limit(cluster.tasks, 2 * cluster.step_timeout, 'Start'),
  )
  context.join()
  return outcome


def _device_names(config: servers.ServerConfig) -> tuple[str, ...]:
  """Returns full names of all workers' devices, in round-robin order."""
  workers = tasks.all_tasks(config.cluster.tasks, 'worker')
  gpus = [device.name for device in tf.config.list_logical_devices('GPU')]
  most = config.num_workers * config.devices.devices_per_worker
  names = []
  for number in range(min(config.devices.num_gpus, most)):
    for task in workers:
      local = [name for name in gpus if name.startswith(task.device('GPU:'))]
      names.append(
        local[number % len(local)] if local else task.device(f'CPU:{number}')
      )
  return tuple(names)


def _layout(
  config: servers.ServerConfig, devices: tuple[str, ...]
) -> exchange.Servers:
  """Maps workers and servers to full device names."""
  cluster, size = config.cluster.tasks, config.devices.devices_per_worker
  count = len(cluster.jobs['worker'])
  leading = [name for i, name in enumerate(devices) if i // count % size == 0]
  return exchange.Servers(
    towers=tower_lib.Towers(tuple(leading), config.num_workers * count),
    servers=tuple(task.device() for task in tasks.all_tasks(cluster, 'ps')),
    num_processes=count,
  )


def _wait_for(
  config: servers.ServerConfig,
  others: list[tasks.Task],
  report: Callable[[str], None],
) -> dict[tasks.Task, tasks.TaskState]:
  """Waits for all other tasks; returns their first states."""
  states = tasks.wait_for_states(
    others,
    config.cluster.start_timeout,
    lambda task: report(f'{datetime.now()}: waiting for {task}'),
  )
  absent = [task for task in others if task not in states]
  if absent:
    raise errors.ConfigError(
      'Cluster: expected an answer from all tasks within --start_timeout='
      f'{config.cluster.start_timeout:g} seconds, received no answer from '
      f'{", ".join(map(str, absent))}. Start each, such as --job_name='
      f'{absent[0].job} --task_id={absent[0].index}; if it runs, read its log.'
    )
  return states


def _compare(
  config: servers.ServerConfig,
  others: list[tasks.Task],
  states: dict[tasks.Task, tasks.TaskState],
) -> None:
  """Raises `errors.ConfigError` for a task with another configuration."""
  for task in others:
    received = states[task].fingerprint
    expected = server_tasks.expected_fingerprint(config, task.job, received)
    with errors.as_config_error():
      fingerprint.check_equal(expected, received, str(task))


def _explain(
  others: list[tasks.Task],
  before: dict[tasks.Task, tasks.TaskState],
  error: Exception,
) -> str | None:
  """Asks the other tasks why a step failed.

  Returns:
    The message of a task that failed; None if no task reports a failure.

  Raises:
    TaskLostError: a task is lost or was restarted.
  """
  for task in others:
    try:
      state = tasks.state_of(task)
    except tasks.LostError as lost:
      raise TaskLostError(f'{task} is lost') from lost
    if task in before and state.incarnation != before[task].incarnation:
      raise TaskLostError(f'{task} was restarted') from error
    if state.trouble:
      return f'{task}: {state.trouble}'
  return None
