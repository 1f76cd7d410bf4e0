"""One synchronous step over worker and ps tasks, as one traced function."""

from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import totals as totals_lib
from terngrad.exchange import server as exchange
from terngrad.exchange import towers as towers_lib
from terngrad.training import nodes
from terngrad.training import step as steps
from terngrad.training import updates


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


def make_train_step(node_pass, codec, layout, replicas, optimizer, seed):
  """Builds the traced step.

  Args:
    node_pass: `nodes.Pass`.
    codec: `codec.gradients.GradientCodec`.
    layout: `exchange.server.Layout`.
    replicas: tuple of `replicas.Replica`, one a place.
    optimizer: `optimizers.Optimizer`, applied once a step to each replica.
    seed: integer, of the run.

  Returns:
    A function of (images [nodes, b, ...], labels [nodes, b], the chief's;
    feeds, list of `Feed`, one for each other process; step int64 [],
    learning_rate float32 [], averaging_decay float32 [], stop float32 []) that
    updates all replicas and returns a `step.StepResult` on the chief, whose
    `words` are those of the chief's places alone.
  """
  towers = layout.towers
  kernel = nodes.kernels(node_pass, codec)
  totals = totals_lib.Totals(codec, towers.num_workers, len(layout.servers))
  ends = [
    updates.make_update(replica, optimizer, node_pass.shrink)
    for replica in replicas
  ]
  places = [
    (replica, towers.workers_of(place))
    for place, replica in enumerate(replicas)
  ]

  def train_step(images, labels, feeds, *numbers_and_stop):
    *numbers, stop = numbers_and_stop
    step = numbers[0]
    seed_and_step = tf.constant(seed, tf.int64), step
    batches = [(images, labels), *(feed.next() for feed in feeds)]
    rounds = []
    for place, where in enumerate(places):
      batch = _batch_of(layout, place, batches)
      rounds.append(nodes.run(node_pass, kernel, *where, batch, seed_and_step))
    shared, agreed = exchange.share(layout, [r.probes for r in rounds])
    payloads = [
      nodes.encode(kernel, r, probe, *where, seed_and_step)
      for r, probe, where in zip(rounds, agreed, places, strict=True)
    ]
    means = exchange.average(layout, totals, payloads, shared, agreed)
    statistics = _mean_statistics(layout, rounds)
    for place, replica in enumerate(replicas):
      with tf.device(replica.device):
        ends[place](means[place], statistics[place], numbers)
    for process, feed in enumerate(feeds, start=1):
      own = rounds[process :: layout.num_processes]
      feed.tell(step, [r.entropy for r in own])
    return steps.StepResult(
      entropy=towers_lib.in_order([r.entropy for r in rounds]),
      probes=towers_lib.in_order([r.probes for r in rounds]),
      shared=agreed[0],
      words=[[p] for p in payloads[:: layout.num_processes]],
      sent=_sent(codec, layout, payloads),
      # The chief decides alone.
      stop=tf.convert_to_tensor(stop),
    )

  return train_step


def _mean_statistics(layout, rounds):
  """For each place the moving statistics, averaged over the workers."""
  means = [
    exchange.mean(layout, list(parts))
    for parts in zip(*(r.statistics for r in rounds), strict=True)
  ]
  return [[mean[place] for mean in means] for place in range(len(rounds))]


def _sent(codec, layout, payloads):
  """int32 [workers], counted where the payloads are."""
  sent = []
  for device, payload in zip(layout.towers.devices, payloads, strict=True):
    with tf.device(device):
      sent.append(codec.sent_words(payload))
  return towers_lib.in_order(sent)


class _Own(NamedTuple):
  """A place's part of its process's batch, by the numbers of its workers."""

  values: tf.Tensor
  num_processes: int

  def __getitem__(self, worker):
    """The examples of a worker, who is the process's worker // P-th."""
    return self.values[worker // self.num_processes]


def _batch_of(layout, place, batches):
  """What `nodes.run` takes: images and labels by worker."""
  count = layout.num_processes
  parts = [_Own(part, count) for part in batches[layout.process_of(place)]]
  return nodes.Batch(*parts, first=0)
