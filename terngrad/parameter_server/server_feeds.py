"""Where the tasks of a cluster are, and what feeds its workers."""

import tensorflow as tf

from terngrad.cluster import tasks
from terngrad.config import servers
from terngrad.exchange import server as exchange
from terngrad.exchange import towers as tower_lib

_DTYPES = (tf.float32, tf.int32)


def layout(config: servers.ServerConfig) -> exchange.Servers:
  """Who lives where: full names of devices."""
  cluster = config.cluster.tasks
  workers = tasks.all_tasks(cluster, 'worker')
  names = []
  for number in range(min(config.devices.num_gpus, config.num_workers)):
    for task in workers:
      prefix = task.device('GPU:')
      gpus = [
        d.name
        for d in tf.config.list_logical_devices('GPU')
        if d.name.startswith(prefix)
      ]
      names.append(
        gpus[number % len(gpus)] if gpus else task.device(f'CPU:{number}')
      )
  return exchange.Servers(
    towers=tower_lib.Towers(tuple(names), config.num_workers * len(workers)),
    servers=tuple(task.device() for task in tasks.all_tasks(cluster, 'ps')),
    num_processes=len(workers),
  )


class Feeds:
  """Lets all workers but the chief read."""

  def __init__(self, config: servers.ServerConfig, channels: int) -> None:
    """Asks nobody yet; `channels` are those of the images."""
    self._tasks = tasks.all_tasks(config.cluster.tasks, 'worker')[1:]
    size, workers = config.data.image_size, config.num_workers
    # Images [nodes, b, s, s, c] and labels [nodes, b].
    share = [workers, config.data.batch_size // workers]
    self._shapes = [*share, size, size, channels], share

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
