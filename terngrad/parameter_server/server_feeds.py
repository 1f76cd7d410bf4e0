"""What feeds the workers of a cluster."""

import tensorflow as tf

from terngrad.cluster import spec
from terngrad.cluster import tasks
from terngrad.exchange import server as exchange

_DTYPES = (tf.float32, tf.int32)


class Feeds:
  """Lets all workers but the chief read."""

  def __init__(self, cluster: spec.Cluster, images: list[int]) -> None:
    """Asks nobody yet.

    Args:
      cluster: the tasks.
      images: the shape of a worker's batch, [nodes, b, height, width, c].
    """
    self._tasks = tasks.all_tasks(cluster, 'worker')[1:]
    self._shapes = images, images[:2]

  def open(self, step: int) -> list[exchange.Feed]:
    """Lets them read from a step on; a feed for each."""
    feeds = []
    for task in self._tasks:
      tag = tasks.new_tag()
      tasks.order(task, do='feed', tag=tag, step=step)
      with tf.device(task.device()):
        handle = tasks.batch_queue(tag, _DTYPES)
        progress = tasks.progress_queue(tag)
      feeds.append(
        exchange.Feed(task.device(), handle, progress, _DTYPES, self._shapes)
      )
    return feeds
