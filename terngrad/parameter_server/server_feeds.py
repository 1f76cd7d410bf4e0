"""Starts the workers that read batches for the chief's steps."""

from collections.abc import Callable

import tensorflow as tf

from terngrad.cluster import spec
from terngrad.cluster import tasks
from terngrad.exchange import server as exchange

# Takes the number of completed steps; see `begin`.
Feeds = Callable[[int], list[exchange.Feed]]
DTYPES = tf.float32, tf.int32


def begin(
  cluster: spec.Cluster, images: list[int], step: int
) -> list[exchange.Feed]:
  """Orders all workers but the chief to read batches from a step on.

  Args:
    cluster: the tasks of the run.
    images: shape of a worker's images, [nodes, b, height, width, channels].
    step: completed steps.

  Returns:
    One feed per worker, without the chief.
  """
  feeds = []
  for task in tasks.all_tasks(cluster, 'worker')[1:]:
    tag = tasks.new_tag()
    tasks.send_order(task, do='feed', tag=tag, step=step)
    with tf.device(task.device()):
      queues = tasks.batch_queue(tag, DTYPES), tasks.progress_queue(tag)
    shapes = images, images[:2]
    feeds.append(exchange.Feed(task.device(), *queues, DTYPES, shapes))
  return feeds
