"""Clusters of which processes are killed or stopped, and continue.

What happens then is documented: equal processes all end and are started again;
servers and workers wait for the lost one, and the chief begins anew.
"""

import functools
import math
import shutil
import signal
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.cluster import watchdog
from tests.bin import clusters
from tests.bin import programs
from tests.torture import references

_STEPS = 60
# Times that a chief may begin anew after the last fault.
_ATTEMPTS = 5
_CHIEF = 'worker', 0


class Mode(NamedTuple):
  """A kind of cluster.

  Attributes:
    num_ps: parameter servers; 0: equal processes that meet in a folder.
    num_workers: workers.
    flags: further words of all commands.
  """

  num_ps: int
  num_workers: int
  flags: tuple = ()


def lost_equal_processes(place, rng):
  """Of equal processes some are lost: all end, and continue together."""
  mode = Mode(0, int(rng.integers(2, 4)))
  expected, seconds = _undisturbed(place.reference, mode)
  train = place.folder / 'train'
  count = int(rng.integers(1, 4))
  with _cluster(place.reference, train, mode, seconds) as cluster:
    for _ in range(count):
      _start_ended(cluster)
      time.sleep(rng.uniform(0, seconds))
      lost = _lose(cluster, rng)
      _wait(cluster, lost)
    _start_ended(cluster)
    for task, done in cluster.wait().items():
      if done.code:
        raise _ended(task, done)
  references.check_equal(train, expected)
  return count


def lost_synchronous_tasks(place, rng):
  """Servers, workers and the chief are lost, and started again."""
  mode = Mode(int(rng.integers(1, 3)), 2)
  expected, seconds = _undisturbed(place.reference, mode)
  count = _lose_tasks(place, rng, mode, seconds)
  references.check_equal(place.folder / 'train', expected)
  return count


def lost_asynchronous_tasks(place, rng):
  """So in a run that has no same end: it ends, and its numbers are finite."""
  flags = ('--sync=False', '--num_replicas_to_aggregate=1')
  mode = Mode(int(rng.integers(1, 3)), 2, (flags[rng.integers(2)],))
  _, seconds = _undisturbed(place.reference, mode)
  count = _lose_tasks(place, rng, mode, seconds)
  _check_finite(place.folder / 'train')
  return count


FAULTS = (lost_equal_processes, lost_synchronous_tasks, lost_asynchronous_tasks)


@functools.cache
def _undisturbed_run(idx, data, mode):
  """See `_undisturbed`; a run of each mode is enough."""
  reference = references.Reference(idx, data, None, 0, {}, [])
  train = idx.parent / '_'.join(map(str, ('cluster', *mode)))
  shutil.rmtree(train, ignore_errors=True)
  before = time.monotonic()
  with _cluster(reference, train, mode) as cluster:
    _start_ended(cluster)
    for task, done in cluster.wait().items():
      if done.code:
        raise _ended(task, done)
  _check_finite(train)
  tensors = programs.tensors(references.last(train))
  return tensors, time.monotonic() - before


def _undisturbed(reference, mode):
  """(tensors, seconds) of a run that nothing disturbs."""
  return _undisturbed_run(reference.idx, reference.data, mode)


def _cluster(reference, train, mode, seconds=math.inf):
  """A `clusters.Cluster`, of which nothing is started yet.

  `seconds` is what a run takes: a busy machine is no lost task.
  """
  words = clusters.arguments(reference.data, train, steps=_STEPS)
  step_timeout = min(600, 60 + 2 * seconds)
  words += ['--save_iter=12', f'--step_timeout={step_timeout}', *mode.flags]
  if mode.num_ps:
    return clusters.Cluster(mode.num_ps, mode.num_workers, words)
  words += programs.as_flags(
    exchange='collective',
    cluster='rendezvous',
    rendezvous_dir=train.with_name(f'{train.name}_meets'),
    rendezvous_processes=mode.num_workers,
    batch_size=12,
  )
  return clusters.Cluster(0, mode.num_workers, words, 'mnist_train')


def _start_ended(cluster):
  """Starts all tasks that do not run, by the same commands as ever."""
  for job, hosts in cluster.hosts.items():
    for index, host in enumerate(hosts):
      task = cluster.tasks.get((job, index))
      if task is None or task.has_ended():
        cluster.start(job, index, f'--own_address={host}')


def _lose_tasks(place, rng, mode, seconds):
  """Runs to the end, and loses some tasks meanwhile; how often."""
  count = int(rng.integers(1, 4))
  train = place.folder / 'train'
  with _cluster(place.reference, train, mode, seconds) as cluster:
    _start_ended(cluster)
    for _ in range(count):
      time.sleep(rng.uniform(0, seconds))
      if cluster.chief.has_ended():
        break
      _lose(cluster, rng)
      _start_ended(cluster)
    for _ in range(_ATTEMPTS):
      done = cluster.chief.wait()
      if not done.code:
        return count
      _check_lost(_CHIEF, done)
      if done.code != watchdog.LOST:
        _wait(cluster, ())
      _start_ended(cluster)
  raise _ended(_CHIEF, done)


def _lose(cluster, rng):
  """Kills some tasks, or stops one until others miss it; the lost ones."""
  tasks = sorted(cluster.tasks)
  rng.shuffle(tasks)
  # Mostly one, seldom all.
  lost = {tuple(task) for task in tasks[: int(rng.geometric(0.7))]}
  first = cluster.tasks[sorted(lost)[0]]
  if rng.random() < 0.4:
    references.send(first, signal.SIGSTOP)
    time.sleep(rng.uniform(0, 3))
    references.send(first, signal.SIGCONT)
  if rng.random() < 0.2 and _CHIEF not in lost:
    for task in lost:
      references.send(cluster.tasks[task], signal.SIGSTOP)
    _check_lost(_CHIEF, cluster.chief.wait())
  for task in lost:
    references.send(cluster.tasks[task], signal.SIGKILL)
    cluster.tasks[task].wait()
  return lost


def _wait(cluster, lost):
  """Waits for all ends, of which those that were not lost tell why."""
  for task, done in cluster.wait().items():
    if task not in lost:
      _check_lost(task, done)


def _check_lost(task, done):
  """Fails unless a task was done, or says in a line that another was lost."""
  has_begun = ': step ' in done.out
  codes = (0, watchdog.LOST) if has_begun else (0, 1, 2, watchdog.LOST)
  said = [line for line in done.err.splitlines() if 'xpected ' in line]
  if done.code not in codes or 'Traceback' in done.err:
    raise _ended(task, done)
  if done.code and not said:
    raise _ended(task, done)


def _ended(task, done):
  return references.Difference(
    f'{task} ended with {done.code}: {done.out[-1000:]} {done.err[-3000:]}'
  )


def _check_finite(train):
  """Fails unless a run ended at its last step with finite numbers."""
  if max(programs.checkpoint_steps(train)) != _STEPS:
    raise references.Difference(f'ended at {references.last(train)}')
  reader = tf.train.load_checkpoint(str(references.last(train)))
  for name, dtype in reader.get_variable_to_dtype_map().items():
    if dtype.is_floating and not np.isfinite(reader.get_tensor(name)).all():
      raise references.Difference(f'{name} is not finite')
  *_, last = programs.metrics(train)
  if last['step'] != _STEPS or not all(
    math.isfinite(value) for value in last.values() if isinstance(value, float)
  ):
    raise references.Difference(f'the last record is {last}')
