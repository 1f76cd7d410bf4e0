"""One training step: gradients, codes, exchange, average, update."""

from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import gradients
from terngrad.codec import parts as parts_lib
from terngrad.exchange import towers
from terngrad.training import nodes
from terngrad.training import step_end
from terngrad.training import synchronized


class StepResult(NamedTuple):
  """What a step tells the loop.

  Attributes:
    entropy: float32 [workers], mean loss of each worker's examples.
    probes: float32 [workers, probes]; not finite where a gradient was not.
    shared: float32 [probes], the agreed probe.
    words: for each device a list of int32 [its workers, words], one a part:
      their payloads.
    sent: int32 [workers of this process], how many words of its payload each
      worker sent.
    stop: float32 [], the largest wish to stop of all processes; see
      `make_train_step`.
    who: tuple of str, what to call the workers; () for by their numbers.
  """

  entropy: tf.Tensor
  probes: tf.Tensor
  shared: tf.Tensor
  words: list
  sent: tf.Tensor
  stop: tf.Tensor
  who: tuple = ()

  def payloads(self, place):
    """The whole payloads of a device, int32 [its workers, words]."""
    return tf.concat(self.words[place], axis=1)


def make_train_step(
  node_pass,
  codec,
  exchange,
  replicas,
  optimizer,
  seed,
  within=synchronized.apart,
):
  """Builds the traced step.

  Args:
    node_pass: `nodes.Pass`.
    codec: `codec.gradients.GradientCodec`, in parts or not; see `codec.parts`.
    exchange: `exchange.towers.Towers` or `exchange.collective.Collective`.
    replicas: tuple of `replicas.Replica`, one a device of `exchange`.
    optimizer: `optimizers.Optimizer`, applied once a step to each replica.
    seed: integer, of the run.
    within: takes a place of `exchange`, returns the context of its passes; see
      `synchronized`.

  Returns:
    A `tf.function` of (images [workers of this process, b, ...], labels int32
    [the same, b], step int64 [], learning_rate float32 [], averaging_decay
    float32 [], stop float32 [] or 0.0: the signal that asks this process to
    stop) that updates the replicas and returns a `StepResult`.
  """
  parts = parts_lib.parts(codec)
  kernels = [nodes.kernels(node_pass, p.codec, p.indices) for p in parts]
  averaging = [exchange.averaging(part.codec) for part in parts]
  ends = [
    step_end.StepEnd(replica, optimizer, node_pass.shrink, parts)
    for replica in replicas
  ]

  @tf.function(reduce_retracing=True)
  def train_step(
    images, labels, step, learning_rate, averaging_decay, stop=0.0
  ):
    seed_and_step = tf.constant(seed, tf.int64), step
    batch = nodes.Batch(images, labels, exchange.first)
    places = [
      (replica, exchange.workers_of(place))
      for place, replica in enumerate(replicas)
    ]
    rounds = []
    for place, where in enumerate(places):
      with within(place):
        rounds.append(
          nodes.run_parts(node_pass, kernels, *where, batch, seed_and_step)
        )
    arrived = [[] for _ in replicas]
    probes, shared, words, sent = [], [], [], []
    # Only data tie the parts to each other, so that one is on its way while
    # others are computed.
    for number, own in enumerate(zip(*rounds, strict=True)):
      if number == 0:
        told = _tell(exchange, own, stop, replicas[0].own_statistics)
        known = [one.probes for one in told]
      else:
        known = exchange.share([one.probes for one in own])
      agreed = _agree(replicas, known)
      payloads = [
        nodes.encode(kernels[number], one, probe, *where, seed_and_step)
        for one, probe, where in zip(own, agreed, places, strict=True)
      ]
      for place, average in enumerate(averaging[number](payloads, agreed)):
        arrived[place].append(average)
      probes.append(known[0])
      shared.append(agreed[0])
      words.append(payloads)
      sent.append([parts[number].codec.sent_words(p) for p in payloads])
    for end, averages, one in zip(ends, arrived, told, strict=True):
      numbers = step, learning_rate, averaging_decay
      end(averages, one.statistics, numbers)
    return StepResult(
      entropy=told[0].entropy,
      probes=parts_lib.join_probes(parts, probes),
      shared=parts_lib.join_probes(parts, shared),
      words=[list(payloads) for payloads in zip(*words, strict=True)],
      sent=towers.in_order(
        [tf.add_n(counts) for counts in zip(*sent, strict=True)]
      ),
      stop=told[0].stop,
    )

  return train_step


def _agree(replicas, known):
  """The agreed probe on each device, from float32 [workers, probes] there."""
  agreed = []
  for replica, probes in zip(replicas, known, strict=True):
    with tf.device(replica.device):
      agreed.append(gradients.agree(probes))
  return agreed


class _Told(NamedTuple):
  """What a device knows of all workers after round 1.

  Attributes:
    probes: float32 [workers, probes].
    entropy: float32 [workers].
    stop: float32 [], the largest.
    statistics: list of float32, the means over the workers. Every device
      averages in their order, so that replicas stay equal to the bit; or over
      those who live there, where replicas keep statistics of their own.
  """

  probes: tf.Tensor
  entropy: tf.Tensor
  stop: tf.Tensor
  statistics: list


def _tell(exchange, rounds, stop, own_statistics):
  """Round 1: all small numbers of a worker travel as one row."""
  moving = [] if own_statistics else rounds[0].statistics
  rows = []
  for place, (device, result) in enumerate(
    zip(exchange.devices, rounds, strict=True)
  ):
    count = len(exchange.workers_of(place))
    with tf.device(device):
      columns = [result.probes, result.entropy, tf.fill([count], stop)]
      if not own_statistics:
        columns += result.statistics
      rows.append(tf.concat([tf.reshape(c, [count, -1]) for c in columns], 1))
  num_probes = rounds[0].probes.shape[1]
  shapes = [value.shape[1:] for value in moving]
  sizes = [num_probes, 1, 1, *(shape.num_elements() for shape in shapes)]
  told = []
  for device, everyone, result in zip(
    exchange.devices, exchange.share(rows), rounds, strict=True
  ):
    with tf.device(device):
      probes, entropy, stops, *moments = tf.split(everyone, sizes, axis=1)
      told.append(
        _Told(
          probes=probes,
          entropy=tf.squeeze(entropy, axis=1),
          stop=tf.reduce_max(stops),
          statistics=[
            tf.reduce_mean(values, axis=0) for values in result.statistics
          ]
          if own_statistics
          else [
            tf.reshape(tf.reduce_mean(values, axis=0), shape)
            for values, shape in zip(moments, shapes, strict=True)
          ],
        )
      )
  return told
