"""Where a run takes place, and what a loop does there besides its steps."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import tensorflow as tf

from terngrad.cluster import coordination
from terngrad.step import step as steps
from terngrad.step import synchronized
from terngrad.training import batches
from terngrad.training import meter


class Habits(NamedTuple):
  """What a loop does besides its steps.

  Attributes:
    within: takes the name of something that waits for other processes, returns
      a context that ends the process where it takes too long.
    log_every: steps between two lines.
    line: takes (step, values), returns the line; see `meter.log_line`.
    save_secs: seconds between checkpoints, beside those of save_iter.
    observe_secs: seconds between histograms, beside those of save_iter.
    before_save: called before every checkpoint; raises where replicas differ
      that the loop does not see.
    measure: called for every record; returns `metrics.Arrivals`, or None where
      every step waits for all.
  """

  within: Callable = nullcontext
  log_every: int = 10
  line: Callable = meter.log_line
  save_secs: float = float('inf')
  observe_secs: float = float('inf')
  before_save: Callable = lambda: None
  measure: Callable = lambda: None


class Surroundings(NamedTuple):
  """Where a run takes place.

  Attributes:
    exchange: `exchange.towers.Towers` or `exchange.collective.Collective`,
      which says where the workers are; a replica is made on each device.
    data: `batches.Data`.
    make_step: takes (`step.Training` of the exchange, codec), returns a traced
      step; see `step.make_train_step`.
    own: the places of the replicas that the loop saves and looks at.
    habits: `Habits`.
    check_same: takes the configuration and what was built, by name; raises
      `errors.ConfigError` where another process has something else.
    dealing: returns the context in which the model's variables are made, those
      of the first replica, where its own device is not that of all.
  """

  exchange: object
  data: batches.Data
  make_step: Callable
  own: range
  habits: Habits
  check_same: Callable = lambda *told, **built: None
  dealing: Callable = nullcontext


def of_this_process(cluster, read, synchronized_statistics):
  """The `Surroundings` of towers, and of one process of a collective.

  Blocks until all processes are there.

  Args:
    cluster: `coordination.Options`. Nothing may have used TensorFlow.
    read: `batches.Options`.
    synchronized_statistics: True where batch normalisation takes the statistics
      of all workers.

  Raises:
    errors.ConfigError, slim.errors.DataError: something is not there.
  """
  # First of all: the CPU can be split only before TensorFlow is used.
  # No more devices than nodes: each has a node.
  exchange = coordination.join(cluster)
  own = range(exchange.first, exchange.first + exchange.own)
  within = {}
  if synchronized_statistics:
    within['within'] = synchronized.together(exchange)

  def make_step(training, codec):
    take = steps.make_train_step(training._replace(**within), codec)
    return tf.function(take, reduce_retracing=True)

  seconds = cluster.step_timeout + coordination.GRACE_SECONDS
  return Surroundings(
    exchange=exchange,
    data=batches.open_data(read, own),
    make_step=make_step,
    own=range(len(exchange.devices)),
    habits=Habits(
      within=functools.partial(coordination.within, cluster.tasks, seconds)
    ),
    check_same=functools.partial(coordination.check_same, exchange),
  )
