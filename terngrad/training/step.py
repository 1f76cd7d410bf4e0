"""One training step: gradients, codes, exchange, average, update."""

from typing import NamedTuple

import tensorflow as tf

from terngrad.exchange import towers as exchange
from terngrad.training import nodes


class StepResult(NamedTuple):
  """What a step tells the loop.

  Attributes:
    entropy: float32 [workers], mean loss of each worker's examples.
    probes: float32 [workers, variables]; not finite where a gradient was not.
    shared: float32 [variables], the agreed probe.
    words: for each device int32 [its workers, words], their payloads.
    sent: int32 [workers], how many words of its payload each worker sent.
  """

  entropy: tf.Tensor
  probes: tf.Tensor
  shared: tf.Tensor
  words: list
  sent: tf.Tensor


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
  kernel = nodes.kernels(node_pass, codec)
  decode = tf.function(codec.decode_mean, jit_compile=codec.compiled)
  updates = [make_update(replica, optimizer) for replica in replicas]

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
      for r, agreed, where in zip(rounds, shared, places, strict=True)
    ]
    words = exchange.send(towers, payloads)
    statistics = _mean_statistics(towers, [r.statistics for r in rounds])
    for place, replica in enumerate(replicas):
      with tf.device(replica.device):
        means = decode(words[place], shared[place])
        numbers = step, learning_rate, averaging_decay
        updates[place](means, statistics[place], numbers)
    return StepResult(
      entropy=exchange.in_order([r.entropy for r in rounds]),
      probes=exchange.in_order([r.probes for r in rounds]),
      shared=shared[0],
      words=payloads,
      sent=exchange.in_order([codec.sent_words(p) for p in payloads]),
    )

  return train_step


def _mean_statistics(towers, statistics):
  """For each device the moving statistics, averaged over the workers.

  Every device averages in the order of the workers, so that replicas stay
  equal to the bit in these too.
  """
  means = [[] for _ in towers.devices]
  for parts in zip(*statistics, strict=True):
    for place, received in enumerate(exchange.send(towers, list(parts))):
      with tf.device(towers.devices[place]):
        in_order = exchange.in_order(received)
        means[place].append(tf.reduce_mean(in_order, axis=0))
  return means


def make_update(replica, optimizer):
  """The compiled end of a step on one device.

  One program, so that an element of a parameter, its slots and its average
  pass through the cores once; and not one with the decoding, which depends on
  the layout of the workers: the compiler would choose by it which product and
  sum to round together, and layouts would differ in the last bit.
  """

  @tf.function(jit_compile=True)
  def update(means, statistics, numbers):
    step, learning_rate, averaging_decay = numbers
    for variable, slots, mean in zip(
      replica.trainable, replica.slots, means, strict=True
    ):
      optimizer.apply(variable, slots, mean, learning_rate, step)
    for variable, value in zip(replica.statistics, statistics, strict=True):
      variable.assign(value)
    values = (*replica.trainable, *replica.statistics)
    for average, value in zip(replica.averages, values, strict=True):
      kept = averaging_decay * average
      average.assign(kept + (1.0 - averaging_decay) * value)

  return update
