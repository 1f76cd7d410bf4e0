"""One training step: gradients, codes, exchange, mean, update.

The same for the devices of one process, for equal processes and for workers
with parameter servers: they differ in their exchange alone.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import gradients
from terngrad.codec import parts as parts_lib
from terngrad.exchange import towers
from terngrad.step import nodes
from terngrad.step import passes
from terngrad.step import states as states_lib
from terngrad.step import step_end


class StepResult(NamedTuple):
  """What a step tells the loop.

  Attributes:
    entropy: float32 [workers], mean loss of each worker's examples.
    probes: float32 [workers, probes]; not finite where a gradient was not.
    shared: float32 [probes], the agreed probe.
    words: for each device of this process a list of int32 [its workers, words],
      one a part: their messages, round after round.
    sent: int32 [workers of the exchange's `own`], how many words each sent.
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


class Training(NamedTuple):
  """What a step trains, and where.

  Attributes:
    node_pass: `passes.Pass`.
    exchange: `exchange.towers.Towers` or another exchange.
    replicas: tuple of `replicas.Replica`, one a device of `exchange`.
    states: `states.MethodStates`.
    optimizer: `optimizers.Optimizer`, applied once a step to each replica.
    seed: integer, of the run.
    within: takes a place of `exchange`, returns the context of its passes; see
      `synchronized`.
  """

  node_pass: passes.Pass
  exchange: object
  replicas: tuple
  states: object
  optimizer: object
  seed: int
  within: Callable = lambda place: contextlib.nullcontext()


def make_train_step(training, codec):
  """Builds the traced step.

  Args:
    training: `Training`.
    codec: `codec.gradients.GradientCodec`, in parts or not; see `codec.parts`.

  Returns:
    A function of (images [workers of this process, b, ...], labels int32 [the
    same, b], step int64 [], learning_rate float32 [], averaging_decay float32
    [], stop float32 [] or 0.0: the signal that asks this process to stop) that
    updates the replicas and returns a `StepResult`. To be traced.
  """
  exchange, replicas = training.exchange, training.replicas
  parts = parts_lib.parts(codec)
  functions = [
    nodes.functions(
      training.node_pass, part.codec, exchange.num_workers, part.indices
    )
    for part in parts
  ]
  places = [
    nodes.Device(
      replica,
      exchange.workers_of(place),
      [
        states_lib.OfPart(part, training.states.workers[place], replica)
        for part in parts
      ],
    )
    for place, replica in enumerate(replicas)
  ]
  ends = [
    step_end.StepEnd(
      replica, training.optimizer, training.node_pass.shrink, parts, functions
    )
    for replica in replicas
  ]
  residuals = [
    training.states.residuals_of(number, part, exchange)
    for number, part in enumerate(parts)
  ]

  def train_step(
    images, labels, step, learning_rate, averaging_decay, stop=0.0
  ):
    seed_and_step = tf.constant(training.seed, tf.int64), step
    rounds = []
    for place, batch in enumerate(exchange.batches(images, labels)):
      with training.within(place):
        rounds.append(
          nodes.run_parts(
            training.node_pass, functions, places[place], batch, seed_and_step
          )
        )
    told = _Told.of(exchange, rounds, stop, replicas[0].own_statistics)
    arrived = [[] for _ in replicas]
    words, sent = [[] for _ in replicas], [[] for _ in replicas]
    # Only data tie the parts to each other, so that one is on its way while
    # others are computed.
    for number, part in enumerate(functions):
      work = [
        nodes.Work(
          part,
          place.states[number],
          computed[number],
          place,
          told.shared[number][i],
          seed_and_step,
          told.counts[i] if replicas[0].scaling else None,
        )
        for i, (place, computed) in enumerate(zip(places, rounds, strict=True))
      ]
      received = [[] for _ in replicas]
      for turn in range(part.codec.num_rounds):
        payloads = [
          one.send(turn, before)
          for one, before in zip(work, received, strict=True)
        ]
        combined = exchange.combine(
          part.codec.messages(turn),
          payloads,
          () if turn else residuals[number],
        )
        for i, (device, payload) in enumerate(
          zip(exchange.devices, payloads, strict=True)
        ):
          received[i].append(combined[i])
          words[i].append(payload)
          with tf.device(device):
            sent[i].append(part.codec.sent_words(payload, turn))
      for i, one in enumerate(work):
        arrived[i].append(step_end.Arrived(one, received[i]))
    for end, averages, statistics in zip(
      ends, arrived, told.statistics, strict=True
    ):
      numbers = step, learning_rate, averaging_decay
      end(averages, statistics, numbers)
    exchange.report(step, [computed[0].entropy for computed in rounds])
    return StepResult(
      entropy=told.entropy,
      probes=parts_lib.join_probes(parts, told.probes),
      shared=parts_lib.join_probes(parts, [one[0] for one in told.shared]),
      words=[words[place] for place in exchange.own_places],
      sent=_total(exchange, sent),
      stop=told.stop,
    )

  return train_step


def _total(exchange, sent):
  """int32 [workers]: words of all parts and rounds, counted where they are."""
  totals = []
  for device, counts in zip(exchange.devices, sent, strict=True):
    with tf.device(device):
      totals.append(tf.add_n(counts))
  return towers.in_order(totals)


class _Told(NamedTuple):
  """What is known of all workers before messages are sent.

  Attributes:
    probes: for each part float32 [workers, probes].
    entropy: float32 [workers].
    stop: float32 [], the largest.
    shared: for each part and each device float32 [probes], the agreed probe.
    statistics: for each device a list of float32, the means over the workers.
      Every device has them from all, in the order of the workers, so that
      replicas stay equal to the bit; or from those who live there, where
      replicas keep statistics of their own.
    counts: for each device bool [], whether all gradients are finite.
  """

  probes: list
  entropy: tf.Tensor
  stop: tf.Tensor
  shared: list
  statistics: list
  counts: list

  @classmethod
  def of(cls, exchange, rounds, stop, own_statistics):
    """All small numbers of a worker travel as one row, with the first part."""
    first = [computed[0] for computed in rounds]
    moving = [] if own_statistics else first[0].statistics
    rows = []
    for place, (device, result) in enumerate(
      zip(exchange.devices, first, strict=True)
    ):
      count = len(exchange.workers_of(place))
      with tf.device(device):
        columns = [result.probes, result.entropy, tf.fill([count], stop)]
        if not own_statistics:
          columns += result.statistics
        rows.append(tf.concat([tf.reshape(c, [count, -1]) for c in columns], 1))
    num_probes = first[0].probes.shape[1]
    shapes = [value.shape[1:] for value in moving]
    sizes = [num_probes, 1, 1, *(shape.num_elements() for shape in shapes)]

    def conclude(everyone):
      probes, _, stops, *moments = tf.split(everyone, sizes, axis=1)
      statistics = [
        tf.reshape(tf.reduce_mean(values, axis=0), shape)
        for values, shape in zip(moments, shapes, strict=True)
      ]
      return gradients.agree(probes), tf.reduce_max(stops), statistics

    everyone, concluded = exchange.share(rows, conclude)
    agreed, stops, statistics = (list(v) for v in zip(*concluded, strict=True))
    if own_statistics:
      pairs = zip(exchange.devices, first, strict=True)
      statistics = [_means(*pair) for pair in pairs]
    shared, probes = [agreed], [everyone[:, :num_probes]]
    for number in range(1, len(rounds[0])):
      known, agreed = exchange.share(
        [computed[number].probes for computed in rounds], gradients.agree
      )
      shared.append(agreed)
      probes.append(known)
    return cls(
      probes=probes,
      entropy=everyone[:, num_probes],
      stop=stops[0],
      shared=shared,
      statistics=statistics,
      counts=[
        tf.reduce_all([tf.reduce_all(tf.math.is_finite(p)) for p in of_device])
        for of_device in zip(*shared, strict=True)
      ],
    )


def _means(device, result):
  """The means over the workers of a device, of `nodes.DeviceRound`."""
  with tf.device(device):
    return [tf.reduce_mean(values, axis=0) for values in result.statistics]
