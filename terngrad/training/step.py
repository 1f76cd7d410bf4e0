"""One training step: gradients, codes, exchange, average, update."""

from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import towers as exchange
from terngrad.training import nodes


class StepResult(NamedTuple):
  """What a step tells the loop.

  Attributes:
    entropy: float32 [workers], mean loss of each worker's examples.
    regularization: float32 [], the sum of the L2 terms.
    probes: float32 [workers, variables]; not finite where a gradient was not.
    shared: float32 [variables], the agreed probe.
    words: int32 [workers, words], what the workers sent.
  """

  entropy: tf.Tensor
  regularization: tf.Tensor
  probes: tf.Tensor
  shared: tf.Tensor
  words: tf.Tensor


def make_train_step(node_pass, codec, towers, replicas, optimizer, seed):
  """Builds the traced step.

  Args:
    node_pass: `nodes.Pass`.
    codec: `codec.gradients.GradientCodec`.
    towers: `exchange.towers.Towers`.
    replicas: tuple of `replicas.Replica`, one a device of `towers`.
    optimizer: `optimizers.Optimizer`, applied once a step to each replica.
    seed: integer, of the run.

  Returns:
    A `tf.function` of (images [workers, b, ...], labels int32 [workers, b],
    step int64 [], learning_rate float32 [], averaging_decay float32 []) that
    updates the replicas and returns a `StepResult`.
  """
  kernel = nodes.kernels(codec)
  decode = tf.function(codec.decode_mean, jit_compile=True)

  @tf.function(reduce_retracing=True)
  def train_step(images, labels, step, learning_rate, averaging_decay):
    seed_and_step = tf.constant(seed, tf.int64), step
    places = [
      (replica, towers.workers_of(place))
      for place, replica in enumerate(replicas)
    ]
    rounds = [
      nodes.run(node_pass, kernel, *where, (images, labels), seed_and_step)
      for where in places
    ]
    shared = exchange.share(towers, [r.probes for r in rounds])
    payloads = [
      nodes.encode(kernel, r, agreed, *where, seed_and_step)
      for r, (agreed, _), where in zip(rounds, shared, places, strict=True)
    ]
    words = exchange.gather(towers, payloads)
    statistics = _mean_statistics(towers, rounds)
    for place, replica in enumerate(replicas):
      with tf.device(replica.device):
        averages = decode(words[place], shared[place][0])
        _apply(optimizer, replica, averages, learning_rate, step)
        for variable, value in zip(
          replica.statistics, statistics[place], strict=True
        ):
          variable.assign(value)
        _average(replica, averaging_decay)
    return StepResult(
      entropy=exchange.gather(towers, [r.entropy for r in rounds])[0],
      regularization=rounds[0].regularization,
      probes=shared[0][1],
      shared=shared[0][0],
      words=words[0],
    )

  return train_step


def _mean_statistics(towers, rounds):
  """For each device the list of moving statistics, averaged over workers.

  Every device averages in the order of the workers, so that replicas stay
  equal to the bit in these too.
  """
  per_device = [[] for _ in towers.devices]
  for parts in zip(*(r.statistics for r in rounds), strict=True):
    gathered = exchange.gather(towers, list(parts))
    for place, device in enumerate(towers.devices):
      with tf.device(device):
        per_device[place].append(tf.reduce_mean(gathered[place], axis=0))
  return per_device


def _apply(optimizer, replica, averages, learning_rate, step):
  for variable, slots, gradient in zip(
    replica.trainable, replica.slots, averages, strict=True
  ):
    optimizer.apply(variable, slots, gradient, learning_rate, step)


def _average(replica, decay):
  """Moves the averages towards the values after the update."""
  values = (*replica.trainable, *replica.statistics)
  for average, value in zip(replica.averages, values, strict=True):
    # average -= (1 - decay) * (average - value), in one pass and in place.
    tf.raw_ops.ResourceApplyGradientDescent(
      var=average.handle, alpha=1.0 - decay, delta=average - value
    )
