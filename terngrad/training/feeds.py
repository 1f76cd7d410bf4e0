"""Where the devices of other processes find their examples."""

from typing import NamedTuple

import tensorflow as tf

from terngrad.training import nodes
from terngrad.training import step as steps


class Feed(NamedTuple):
  """Where a process other than the chief finds its batches.

  Attributes:
    device: full name of its first CPU.
    handle: resource of its queue of batches.
    progress: resource of its queue of steps taken, see `exchange.tasks`.
    dtypes: of images and labels.
    shapes: of images [nodes, b, ...] and labels [nodes, b].
  """

  device: str
  handle: tf.Tensor
  progress: tf.Tensor
  dtypes: tuple
  shapes: tuple

  def next(self):
    """(images, labels), on the process's own CPU."""
    with tf.device(self.device):
      parts = tf.raw_ops.QueueDequeueV2(
        handle=self.handle, component_types=list(self.dtypes)
      )
    for part, shape in zip(parts, self.shapes, strict=True):
      part.set_shape(shape)
    return tuple(parts)

  def tell(self, step, losses):
    """Lets the process say what its examples' loss was.

    Args:
      step: int64 [], steps taken before this one.
      losses: list of float32 [nodes], of its places.
    """
    with tf.device(self.device):
      loss = tf.reduce_mean(tf.concat(losses, axis=0))
      tf.raw_ops.QueueEnqueueV2(
        handle=self.progress, components=[step + 1, loss]
      )


def of_processes(exchange, feeds):
  """The examples of all processes, those of the chief as the step is called.

  Args:
    exchange: `exchange.server.Servers`.
    feeds: list of `Feed`, one for each process but the chief; looked at when
      the step is traced.

  Returns:
    `step.Feeds`.
  """
  count = exchange.num_processes

  def batches(images, labels):
    found = [(images, labels), *(feed.next() for feed in feeds)]
    processes = [
      exchange.process_of(place) for place in range(len(exchange.devices))
    ]
    # Process p has the workers p, p + P, p + 2 P...
    return [nodes.Batch(*found[p], first=p, stride=count) for p in processes]

  def tell(step, losses):
    for process, feed in enumerate(feeds, start=1):
      feed.tell(step, losses[process::count])

  return steps.Feeds(batches, tell)
