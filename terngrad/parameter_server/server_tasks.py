"""The tasks that the chief controls: every ps and every other worker.

A ps adds the gradients that it receives and uses no GPU. A worker reads data
and computes on its devices. Both follow the orders of the chief and end with
the run.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from slim import errors as data_errors
from slim.datasets import shards
from terngrad import errors
from terngrad.cluster import coordination
from terngrad.cluster import devices
from terngrad.cluster import fingerprint
from terngrad.cluster import service as services
from terngrad.cluster import spec
from terngrad.cluster import tasks
from terngrad.config import model
from terngrad.config import options
from terngrad.config import servers
from terngrad.machine import determinism
from terngrad.parameter_server import server_feeds
from terngrad.training import batches as batches_lib
from terngrad.training import metric
from terngrad.training import metrics

# Seconds between two checks that the chief still answers.
_CHECK_SECONDS = 5.0
# The field of a fingerprint: whether the process has native kernels.
_KERNELS = 'kernels'
# Steps between two log lines of a worker.
LOG_EVERY = 30
# Rates of the whole run; the 2017 log line shows one worker's rates instead.
_RUN_RATES = ('examples_per_sec', 'sec_per_batch')


def worker_line(
  worker: int,
  what: str,
  examples_per_sec: float,
  sec_per_batch: float,
  more: Sequence[str] = (),
) -> str:
  """Formats the log line of a worker as the 2017 code did.

  The line holds the text `what`, then the worker's rates and `more` texts in
  brackets.
  """
  rates = (
    f'{examples_per_sec:.1f} examples/sec',
    f'{sec_per_batch:.3f} sec/batch',
    *more,
  )
  return f'Worker {worker}: {datetime.now()}: {what} ({"; ".join(rates)})'


def chief_line(
  num_processes: int,
  step: int,
  values: Mapping[str, float],
  batches: float = 1,
  without: Collection[str] = (),
) -> str:
  """Formats the chief's log lines as the 2017 code did.

  They hold the mean rates of one worker and the loss of the step.

  Args:
    num_processes: number of worker processes.
    step: completed steps.
    values: values of `metrics.TRAINING`, by name.
    batches: mean number of steps in which a worker computes one batch.
    without: names of metrics to leave out.
  """
  more = metric.texts(
    metrics.TRAINING, values, 'brackets', {*_RUN_RATES, *without}
  )
  return f'global_step/sec: {1 / values["sec_per_batch"]:.2f}\n' + worker_line(
    0,
    f'step {step}, loss = {values["total_loss"]:.2f}',
    values['examples_per_sec'] / num_processes,
    values['sec_per_batch'] * batches,
    more,
  )


def task_fingerprint(config: servers.ServerConfig, job: str) -> dict[str, Any]:
  """Returns the values that a task must share with the chief.

  A ps needs no options of the run, and its threads do not change the result, so
  only the versions of terngrad and TensorFlow count for it, its kernels (see
  `expected_fingerprint`) and the numbers of tasks. Workers read parts that
  depend on these numbers.
  """
  jobs = config.cluster.tasks.jobs
  tasks = {f'{name}_tasks': len(jobs[name]) for name in sorted(jobs)}
  if job == 'ps':
    fields = fingerprint.fingerprint(**tasks)
    names = 'terngrad', 'tensorflow', _KERNELS, *tasks
    return {name: fields[name] for name in names}
  return fingerprint.fingerprint(
    codec=config.codes.methods(config.num_workers).code.name,
    num_workers=config.num_workers,
    **tasks,
    **options.values(config, 'shared', options.WORKERS),
  )


def expected_fingerprint(
  config: servers.ServerConfig, job: str, received: Mapping[str, str]
) -> dict[str, str]:
  """Returns the values that the chief expects of a task.

  In an asynchronous run a ps decodes with the chief's methods, so it needs
  kernels if the chief has them. Otherwise those of a ps do not count.
  """
  expected = task_fingerprint(config, job)
  needs_kernels = not config.cluster.waits_for_all
  if job == 'ps' and not (needs_kernels and expected[_KERNELS] == str(True)):
    expected[_KERNELS] = received.get(_KERNELS, '')
  return expected


def open_part(config: servers.ServerConfig) -> batches_lib.Data:
  """Opens the examples of this worker process.

  Workers that share a folder read disjoint parts of it. A folder that
  `split_dataset.sh` made is already one worker's part and is read whole.

  Raises:
    slim.errors.DataError: the data is missing or unreadable.
  """
  cluster = config.cluster.tasks
  is_part = shards.is_workers(config.data.data_dir)
  return batches_lib.open_data(
    config.data,
    config.model,
    config.num_workers,
    config.run.benchmark_mode,
    part=(0, 1) if is_part else (cluster.index, len(cluster.jobs['worker'])),
  )


def serve(
  config: servers.ServerConfig,
  report: Callable[[str], object],
  stopped: Callable[[], int | None] = lambda: None,
) -> int | None:
  """Serves until the chief ends the run.

  After a signal it still serves while the chief answers: a launcher or a
  terminal signals all tasks, and without this one the chief could not finish
  its step and write a checkpoint.

  Args:
    config: configuration of this task, which is not the chief.
    report: called with each log line.
    stopped: returns the number of a signal that asks this process to end, or
      None.

  Returns:
    None, or the number of the signal.

  Raises:
    errors.ConfigError: the port is in use, or the run could not start.
    slim.errors.DataError: the data of this worker is missing or unreadable.
    errors.TrainingError: the run failed, or the chief does not answer.
  """
  with determinism.require(config.devices.deterministic):
    return _serve(config, report, stopped)


def _serve(
  config: servers.ServerConfig,
  report: Callable[[str], object],
  stopped: Callable[[], int | None],
) -> int | None:
  cluster = config.cluster.tasks
  task = tasks.all_tasks(cluster, cluster.job)[cluster.index]
  chief = tasks.all_tasks(cluster, 'worker')[0]
  # TensorFlow's server does not say why it could not start.
  coordination.check_port(cluster)
  # The GPUs belong to this process's server; the process itself reads data.
  devices.hide_gpus()
  devices.limit_threads(config.devices.threads)
  data = open_part(config) if task.job == 'worker' else None
  service = _start(config, cluster, task)
  report(f'{datetime.now()}: {task} serves')
  feeder = _Feeder(service, config.data, data, report) if data else None
  # Twice, because the chief waits for the other tasks before it answers.
  patience = 2 * config.cluster.start_timeout
  seen = time.monotonic()
  has_reported = False
  while True:
    order = service.next_order(min(_CHECK_SECONDS, patience / 2)) or {}
    if order or tasks.answers(chief):
      seen = time.monotonic()
    elif stopped():
      return stopped()
    elif time.monotonic() - seen > patience:
      raise errors.TrainingError(
        f'{task}: expected an answer from the chief, {chief}, within twice '
        f'--start_timeout, {patience:g} seconds, received none. Start the '
        'chief, then restart this task.'
      )
    if order.get('do') == 'end':
      service.wait_for_chief_end(chief)
      if order.get('why') and not stopped():
        begun = order.get('has_begun', True)
        kind = errors.TrainingError if begun else errors.ConfigError
        raise kind(f'{task}: the chief ended the run: {order["why"]}')
      report(f'{datetime.now()}: the run has ended')
      return stopped()
    if stopped() and not has_reported:
      has_reported = True
      report(f'{datetime.now()}: {task} serves until the chief ends the run')
    if order.get('do') == 'feed' and feeder:
      feeder.begin(str(order['tag']), int(order['step']))
      report(
        f'{datetime.now()}: {task} reads batches from step {order["step"]} on'
      )


def _start(
  config: servers.ServerConfig, cluster: spec.Cluster, task: tasks.Task
) -> services.TaskServer:
  """Starts this process's server."""
  counts = {'GPU': 0} if task.job == 'ps' else {'CPU': config.devices.num_gpus}
  fields = task_fingerprint(config, task.job)
  try:
    return services.TaskServer(task, cluster, fields, counts)
  except tasks.LostError as error:
    raise errors.ConfigError(str(error)) from error


class _Feeder:
  """Reads batches in a thread, for one chief process at a time."""

  def __init__(
    self,
    service: services.TaskServer,
    options: model.DataOptions,
    data: batches_lib.Data,
    report: Callable[[str], object],
  ) -> None:
    self._report = report
    self._service = service
    self._options = options
    self._data = data
    self._end: Callable[[], None] = lambda: None

  def begin(self, tag: str, step: int) -> None:
    """Starts to fill the queue `tag`, from the batch of a step on."""
    # The queue of a lost chief may still exist and be full.
    self._end()
    stop = threading.Event()
    self._end = functools.partial(self._close, tag, stop)
    run = functools.partial(self._run, tag, step, stop)
    log = functools.partial(self._log_steps, tag, step)
    threading.Thread(target=run, daemon=True).start()
    threading.Thread(target=log, daemon=True).start()

  def _close(self, tag: str, stop: threading.Event) -> None:
    stop.set()
    self._service.close(tag, server_feeds.DTYPES)

  def _run(self, tag: str, step: int, stop: threading.Event) -> None:
    options = self._options
    try:
      with batches_lib.explain_read_errors(
        options.data_dir, options.subset, data_errors.DataError
      ):
        self._service.feed(tag, self._data.batches(step), stop)
    except Exception as error:
      if stop.is_set():
        return
      is_data_error = isinstance(error, data_errors.DataError)
      # The chief would wait for this worker's batches.
      self._service.fail(
        str(error)
        if is_data_error
        else f'expected to read batches, received {error!r}. Read its log.'
      )
      self._close(tag, stop)
      if not is_data_error:
        raise

  def _log_steps(self, tag: str, step: int) -> None:
    """Logs the completed steps until the queue is closed."""
    since, before = time.monotonic(), step
    for step, loss in self._service.progress(tag):
      if step % LOG_EVERY:
        continue
      now = time.monotonic()
      seconds = (now - since) / (step - before)
      since, before = now, step
      line = worker_line(
        self._service.task.index,
        f'step {step}, entropy_loss = {loss:.2f}',
        self._options.batch_size / seconds,
        seconds,
      )
      # If nobody reads the log or its disk is full, the run continues. It would
      # stop if nobody emptied the queue.
      with contextlib.suppress(OSError):
        self._report(line)
