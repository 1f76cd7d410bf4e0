"""What feeds the workers of a cluster."""

from collections.abc import Callable

import tensorflow as tf

from terngrad.cluster import spec
from terngrad.cluster import tasks
from terngrad.exchange import server as exchange

# Lets the workers read from a step on.
Feeds = Callable[[int], list[exchange.Feed]]
DTYPES = tf.float32, tf.int32


def begin(
  cluster: spec.Cluster, images: list[int], step: int
) -> list[exchange.Feed]:
  """Lets all workers but the chief read from a step on.

  Args:
    cluster: the tasks.
    images: the shape of a worker's batch, [nodes, b, height, width, c].
    step: steps taken before.

  Returns:
    A feed for each.
  """
  feeds = []
  for task in tasks.all_tasks(cluster, 'worker')[1:]:
    tag = tasks.new_tag()
    tasks.order(task, do='feed', tag=tag, step=step)
    with tf.device(task.device()):
      queues = tasks.batch_queue(tag, DTYPES), tasks.progress_queue(tag)
    shapes = images, images[:2]
    feeds.append(exchange.Feed(task.device(), *queues, DTYPES, shapes))
  return feeds
