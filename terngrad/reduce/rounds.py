"""The messages of a step: a row of numbers a worker, then round after round."""

from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.reduce import gradients
from terngrad.reduce import nodes
from terngrad.step import passes


class Metadata(NamedTuple):
  """What is known of all workers before messages are sent.

  Attributes:
    probes: for each part float32 [workers, probes].
    scores: float32 [workers, `passes.NUM_SCORES`].
    stop: float32 [], the largest.
    shared: for each part and each device float32 [probes], the agreed probe.
    statistics: for each device a list of float32, the means over the workers.
      Every device has them from all, in the order of the workers, so that
      replicas stay equal to the bit; or from those who live there, where
      replicas keep statistics of their own.
  """

  probes: list
  scores: tf.Tensor
  stop: tf.Tensor
  shared: list
  statistics: list

  @classmethod
  def of(cls, exchange, rounds, stop, own_statistics):
    """Lets all small numbers of a worker travel as one row.

    Probes of other parts than the first travel by themselves.

    Args:
      exchange: `exchange.towers.Towers` or another exchange.
      rounds: for each device the list of `nodes.DeviceRound` of all parts.
      stop: float32 [], the wish of this process to stop.
      own_statistics: whether replicas keep statistics of their own.

    Returns:
      A `Metadata`.
    """
    first = [computed[0] for computed in rounds]
    rows = _rows(exchange, first, stop, with_statistics=not own_statistics)
    moving = [] if own_statistics else first[0].statistics
    shapes = [value.shape[1:] for value in moving]
    num_probes = first[0].probes.shape[1]
    sizes = [num_probes, passes.NUM_SCORES, 1]
    sizes += [shape.num_elements() for shape in shapes]

    def conclude(everyone):
      probes, _, stops, *moments = tf.split(everyone, sizes, axis=1)
      statistics = [
        tf.reshape(tf.reduce_mean(values, axis=0), shape)
        for values, shape in zip(moments, shapes, strict=True)
      ]
      return gradients.agree(probes), tf.reduce_max(stops), statistics

    everyone, concluded = exchange.gather_metadata(rows, conclude)
    agreed, stops, statistics = (list(v) for v in zip(*concluded, strict=True))
    if own_statistics:
      pairs = zip(exchange.devices, first, strict=True)
      statistics = [_means(*pair) for pair in pairs]
    shared, probes = [agreed], [everyone[:, :num_probes]]
    for number in range(1, len(rounds[0])):
      known, agreed = exchange.gather_metadata(
        [computed[number].probes for computed in rounds], gradients.agree
      )
      shared.append(agreed)
      probes.append(known)
    return cls(
      probes=probes,
      scores=everyone[:, num_probes : num_probes + passes.NUM_SCORES],
      stop=stops[0],
      shared=shared,
      statistics=statistics,
    )


def _rows(exchange, first, stop, with_statistics):
  """For each device float32 [its workers, numbers]: probes, scores, ..."""
  rows = []
  for index, (device, result) in enumerate(
    zip(exchange.devices, first, strict=True)
  ):
    count = len(exchange.workers_of(index))
    with tf.device(device):
      columns = [result.probes, result.scores, tf.fill([count], stop)]
      if with_statistics:
        columns += result.statistics
      rows.append(tf.concat([tf.reshape(c, [count, -1]) for c in columns], 1))
  return rows


def _means(device, result):
  """The means over the workers of a device, of `nodes.DeviceRound`."""
  with tf.device(device):
    return [tf.reduce_mean(values, axis=0) for values in result.statistics]


class Work(NamedTuple):
  """What the nodes of one device do for a part after their passes.

  Attributes:
    part: `nodes.Functions`.
    states: `states.OfPart`, which change.
    computed: `nodes.DeviceRound`.
    where: `nodes.Device`.
    shared: float32 [probes], the agreed probe.
    seed_and_step: pair of int64 [].
    counts: bool [], whether the step does; None where every step does. One that
      does not leaves the states as they are.
  """

  part: nodes.Functions
  states: object
  computed: nodes.DeviceRound
  where: nodes.Device
  shared: tf.Tensor
  seed_and_step: tuple
  counts: tf.Tensor | None = None

  def send(self, number, received):
    """The messages of a round, int32 [nodes, words].

    Args:
      number: of the round.
      received: see `GradientCodec.send`.
    """

    def body(carried, states, told):
      own = methods.received_by(told[-1], received)
      return self.part.send[number](carried, states, own, *told)

    (payloads,) = self._for_each([(tf.int32, None)], body)
    with tf.device(self.where.replica.device):
      return payloads.stack()

  def finish(self, means):
    """Lets nodes remember what depends on the mean gradients of the part."""

    def body(carried, states, told):
      return None, self.part.finish(carried, states, means, *told)

    self._for_each([], body)

  def _for_each(self, specs, body):
    device = self.where.replica.device

    def of_worker(worker):
      node = self.where.node_of(worker)
      carried = [_listed(array.read(node)) for array in self.computed.carried]
      own = self.computed.probes[node]
      told = own, self.shared, *self.seed_and_step, worker
      result, after = body(carried, self.states.read(node), told)
      self.states.write(node, after, self.counts)
      return [] if result is None else [result]

    with tf.device(device):
      return nodes.map_nodes(device, self.where.workers, specs, of_worker)


def _listed(value):
  return value if isinstance(value, list) else [value]


class PendingMean(NamedTuple):
  """A part's messages on a device, before it decodes them.

  Attributes:
    work: `Work` of the device.
    received: see `reduce.gradients.GradientCodec.send`, of all rounds.
    words: for each round int32 [its workers, words], what they sent.
    sent: for each round int32 [its workers], how many words of those.
  """

  work: Work
  received: list
  words: list
  sent: list

  @property
  def turn(self):
    """`reduce.gradients.Turn` of the step."""
    work = self.work
    return gradients.Turn(
      *work.seed_and_step, work.part.num_workers, shared=work.shared
    )

  def means(self):
    """The list of mean gradients; states that depend on them change."""
    work, states = self.work, self.work.states
    means, after = work.part.decode(
      self.received, states.read_shared(), work.shared, *work.seed_and_step
    )
    states.write_shared(after, work.counts)
    if work.part.codec.finishes:
      work.finish(means)
    return means


def exchange_part(exchange, codec, work):
  """Lets a part's messages travel, round after round.

  Args:
    exchange: `exchange.towers.Towers` or another exchange.
    codec: `reduce.gradients.GradientCodec` of the part.
    work: list of `Work`, one a device.

  Returns:
    List of `PendingMean`, one a device.
  """
  received, words, sent = ([[] for _ in work] for _ in range(3))
  for number in range(codec.num_rounds):
    payloads = [w.send(number, r) for w, r in zip(work, received, strict=True)]
    combined = exchange.combine(codec.messages(number), payloads)
    for i, device in enumerate(exchange.devices):
      received[i].append(combined[i])
      words[i].append(payloads[i])
      with tf.device(device):
        sent[i].append(codec.sent_words(payloads[i], number))
  return list(map(PendingMean, work, received, words, sent))
