"""The tasks that serve a run: every ps, and every worker but the chief.

A ps adds what is sent to it and holds no GPU. A worker computes on its devices
and reads its own data. What they do the chief decides; they wait for its
orders, and end with the run.
"""

import threading
import time
from datetime import datetime

import tensorflow as tf

from slim import errors as data_errors
from slim.datasets import shards
from slim.datasets.records import records as data_records
from terngrad import errors
from terngrad.cluster import coordination
from terngrad.cluster import devices
from terngrad.cluster import fingerprint
from terngrad.cluster import service as services
from terngrad.cluster import tasks
from terngrad.config import options
from terngrad.training import batches as batches_lib
from terngrad.training import metric
from terngrad.training import metrics

# Seconds between two looks whether the chief is still there.
_LOOK_EVERY = 5.0
_DTYPES = (tf.float32, tf.int32)
# Steps between two lines of a worker.
LOG_EVERY = 30
# Those of the run, of which lines of 2017 show a worker's share.
_OWN_RATES = ('examples_per_sec', 'sec_per_batch')


def worker_line(worker, what, examples_per_sec, sec_per_batch, more=()):
  """The 2017 line of a worker.

  Args:
    worker: its number.
    what: the text before the brackets.
    examples_per_sec: float.
    sec_per_batch: float.
    more: texts to add in the brackets.
  """
  rates = (
    f'{examples_per_sec:.1f} examples/sec',
    f'{sec_per_batch:.3f} sec/batch',
    *more,
  )
  return f'Worker {worker}: {datetime.now()}: {what} ({"; ".join(rates)})'


def chief_line(num_processes, step, values, batches=1, without=()):
  """The 2017 lines of the chief: a worker's mean rates, the loss of the step.

  Args:
    num_processes: worker processes.
    step: steps taken.
    values: dict of name to number, of `metrics.TRAINING`.
    batches: steps in which a worker computes a batch.
    without: names of metrics to leave out.
  """
  more = metric.texts(
    metrics.TRAINING, values, 'brackets', {*_OWN_RATES, *without}
  )
  return f'global_step/sec: {1 / values["sec_per_batch"]:.2f}\n' + worker_line(
    0,
    f'step {step}, loss = {values["total_loss"]:.2f}',
    values['examples_per_sec'] / num_processes,
    values['sec_per_batch'] * batches,
    more,
  )


def own_fingerprint(config, job):
  """What this task must have in common with the chief.

  A ps needs no flags of the run, and its threads and kernels change no bit.
  """
  if job == 'ps':
    fields = fingerprint.fingerprint()
    return {name: fields[name] for name in ('terngrad', 'tensorflow')}
  return fingerprint.fingerprint(
    codec=config.codes.named(config.num_workers).code.name,
    num_workers=config.num_workers,
    **options.values(config, 'shared', options.WORKERS),
  )


def open_part(config):
  """The examples of this worker process; see `batches.open_data`.

  Workers of one folder read disjoint parts of it; a folder that
  `split_dataset.sh` made is a part already and is read whole.
  """
  cluster = config.cluster.tasks
  part = cluster.index, len(cluster.jobs['worker'])
  if shards.is_workers(config.data.data_dir):
    part = 0, 1
  return batches_lib.open_data(
    config.data,
    config.model,
    config.num_workers,
    config.run.benchmark_mode,
    part=part,
  )


def serve(config, report, stopped=lambda: None):
  """Serves until the chief says that the run has ended.

  Args:
    config: `servers.ServerConfig` of this process, which is not chief.
    report: called with each line for the person who watches.
    stopped: returns the number of a signal that asks this process to end, or
      None.

  Returns:
    None, or what `stopped` returned.

  Raises:
    errors.ConfigError: the port is taken, or the run could not begin.
    slim.errors.DataError: a worker's data is not there.
    errors.TrainingError: the run failed, or its chief is gone.
  """
  cluster = config.cluster.tasks
  task = tasks.all_tasks(cluster, cluster.job)[cluster.index]
  chief = tasks.all_tasks(cluster, 'worker')[0]
  # TensorFlow's server says only that it could not start.
  coordination.check_port(cluster)
  # What this process computes by itself is reading; its server has the GPUs.
  devices.hide_gpus()
  devices.limit_threads(config.devices.threads)
  batches = None
  if task.job == 'worker':
    batches = open_part(config).batches
  service = _start(config, cluster, task)
  report(f'{datetime.now()}: {task} serves')
  feeder = _Feeder(service, config.data, batches, report)
  # The chief itself waits for the others before it is there.
  patience = 2 * config.cluster.start_timeout
  seen = time.monotonic()
  while not stopped():
    order = service.next_order(min(_LOOK_EVERY, patience / 2)) or {}
    if order or tasks.answers(chief):
      seen = time.monotonic()
    elif time.monotonic() - seen > patience:
      raise errors.TrainingError(
        f'{task}: expected the chief, {chief}, to come or come back within '
        f'{patience} seconds, received no answer. Start it, and this task '
        'again.'
      )
    if order.get('do') == 'end':
      service.outlive(chief)
      if order.get('why'):
        begun = order.get('has_begun', True)
        kind = errors.TrainingError if begun else errors.ConfigError
        raise kind(f'{task}: the chief ended: {order["why"]}')
      report(f'{datetime.now()}: the run has ended')
      return None
    if order.get('do') == 'feed' and batches:
      feeder.begin(str(order['tag']), int(order['step']))
      report(f'{datetime.now()}: {task} reads from step {order["step"]} on')
  return stopped()


def _start(config, cluster, task):
  """Starts this process's server."""
  counts = {'GPU': 0} if task.job == 'ps' else {'CPU': config.devices.num_gpus}
  fields = own_fingerprint(config, task.job)
  try:
    return services.Service(task, cluster, fields, counts)
  except tasks.LostError as error:
    raise errors.ConfigError(str(error)) from error


class _Feeder:
  """Reads batches in a thread, for one process of the chief at a time."""

  def __init__(self, service, data, batches, report):
    self._report = report
    self._service = service
    self._data = data
    self._batches = batches
    self._stop = None
    self._tag = None

  def begin(self, tag, step):
    """Starts from the batch of a step, in the queue `tag`."""
    if self._stop:
      # A chief that was lost left its queue behind, perhaps full.
      self._stop.set()
      self._service.close(self._tag, _DTYPES)
    self._stop, self._tag = threading.Event(), tag
    for target in (self._run, self._tell):
      threading.Thread(
        target=target, args=(tag, step, self._stop), daemon=True
      ).start()

  def _run(self, tag, step, stop):
    trouble = ''
    try:
      batches = self._batches(step)
      self._service.feed(tag, batches, stop)
    except data_errors.DataError as error:
      trouble = str(error)
    except data_records.FAILURES as error:
      paths = data_records.find(self._data.data_dir, self._data.subset)
      trouble = str(data_records.explain(error, paths))
    if trouble and not stop.is_set():
      self._service.fail(trouble)
      self._service.close(tag, _DTYPES)

  def _tell(self, tag, step, stop):
    """Says what steps were taken, until the queue is closed."""
    del stop
    since, before = time.monotonic(), step
    for step, loss in self._service.progress(tag):
      if step % LOG_EVERY:
        continue
      now = time.monotonic()
      seconds = (now - since) / (step - before)
      since, before = now, step
      self._report(
        worker_line(
          self._service.task.index,
          f'step {step}, entropy_loss = {loss:.2f}',
          self._data.batch_size / seconds,
          seconds,
        )
      )
