"""What a step would take on another network, by a model of its parts.

A step is computing, coding and the wire. Coding is timed here, on one gradient,
and taken to grow with the elements; bytes are those that the exchanges count;
a message waits `latency` for every hop one after the other: P - 1 of a gather,
one more of two shots and slices, 2 (P - 1) of a ring, one of what is scattered.
What travels while the
backward pass goes on (`overlap`) is hidden.
"""

import functools
import math
import statistics
from typing import NamedTuple

import pandas as pd
import tensorflow as tf
from matplotlib import figure

from terngrad.codec import bucketing
from terngrad.codec import gradients as gradients_lib
from terngrad.codec import method as methods
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.exchange import algorithms
from terngrad.measure import timing
from terngrad.step import nodes
from terngrad.step import passes

FLOAT32 = 'identity'
_SAMPLE = (1024, 1024)
_BANDWIDTHS = [10 ** (7 + i / 4) for i in range(17)]
_WORKERS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000]


class Network(NamedTuple):
  """What joins the workers, each of which is a process of its own.

  Attributes:
    bandwidth: bits a second, of a process in either direction.
    latency: seconds from one process to another.
    workers: P.
  """

  bandwidth: float
  latency: float
  workers: int


class Coding(NamedTuple):
  """Seconds an element.

  Attributes:
    send: to make all messages of one's own.
    receive: to make the means of two workers' messages.
    more: for the messages of each further worker, where they are gathered.
  """

  send: float
  receive: float
  more: float


class Plan(NamedTuple):
  """The parts of a step, in seconds.

  Attributes:
    computing: forward, backward and update.
    coding: see `Coding`.
    wire: bytes and latencies, of which some are hidden.
    hidden: of the wire.
  """

  computing: float
  coding: float
  wire: float
  hidden: float

  @property
  def step(self):
    """All of it."""
    return self.computing + self.coding + self.wire - self.hidden


def coding(text, rounds=5):
  """Times a code on this machine.

  Args:
    text: as `--codec` spells it.
    rounds: to take the median of.

  Returns:
    A `Coding`.

  Raises:
    ValueError: the text names no method.
  """
  jobs = {}
  for workers in (2, 8):
    for name, job in zip(('send', 'receive'), _job(text, workers), strict=True):
      jobs[name, workers] = job, 1
  seconds = {
    name: statistics.median(values)
    for name, values in timing.in_turns(jobs, rounds).items()
  }
  size = math.prod(_SAMPLE)
  two, eight = seconds['receive', 2], seconds['receive', 8]
  return Coding(
    seconds['send', 2] / size, two / size, max(0.0, eight - two) / 6 / size
  )


def _job(text, workers):
  """(a job that sends, a job that receives) for a gradient of the sample."""
  spec = policy.VariableSpec('v', _SAMPLE)
  codec = bucketing.gradient_codec([spec], [registry.method(text, workers)])
  codec = bucketing.on_kernels(codec)
  no_pass = passes.Pass(None, passes.no_decay, None, None, 0)
  part = nodes.functions(no_pass, codec, workers)
  gradient = tf.random.stateless_normal(_SAMPLE, [1, 2])
  states = [
    [state.first_value() for state in bucket.states] for bucket in codec.buckets
  ]
  numbers = tf.constant(1, tf.int64), tf.constant(0, tf.int64)
  worker = tf.constant(0)

  @tf.function
  def send(received):
    values, own = part.begin([gradient], [gradient], states, *numbers, worker)
    carried = part.carry(values, own, *numbers, worker, False)
    shared = gradients_lib.agree(own[tf.newaxis])
    arrived = methods.received_by(worker, received)
    words = [
      part.send[number](
        carried, states, arrived[:number], own, shared, *numbers, worker
      )[0]
      for number in range(codec.num_rounds)
    ]
    return words, shared

  @tf.function
  def receive(rows, shared):
    return part.decode(_received(codec, rows), states, shared, *numbers)[0]

  rows = [
    tf.zeros([workers, codec.round_words(n)], tf.int32)
    for n in range(codec.num_rounds)
  ]
  words, shared = send(_received(codec, rows))
  rows = [tf.tile(own[tf.newaxis], [workers, 1]) for own in words]
  received = _received(codec, rows)
  return lambda: send(received)[1].numpy(), lambda: [
    mean.numpy() for mean in receive(rows, shared)
  ]


def _received(codec, rows):
  return [
    methods.payloads(codec.messages(number), [methods.Piece(0, [row])])
    for number, row in enumerate(rows)
  ]


def plan(text, shapes, computing, network, cost, overlap=0.0):
  """What a step takes with a code.

  Args:
    text: as `--codec` spells it.
    shapes: list of tuple of int, of the variables.
    computing: seconds of a worker's step without exchange.
    network: `Network`.
    cost: `Coding` of the code.
    overlap: part of the computing during which messages may travel, in [0, 1].

  Returns:
    A `Plan`.
  """
  num_bytes, hops, gathers = _wire(text, tuple(shapes), network)
  size = sum(methods.sizes_of(shapes))
  others = max(0, network.workers - 2) if gathers else 0
  coded = (cost.send + cost.receive + others * cost.more) * size
  wire = 8 * num_bytes / network.bandwidth + hops * network.latency
  return Plan(computing, coded, wire, min(wire, overlap * computing))


@functools.cache
def _wire(text, shapes, network):
  """(bytes a process sends, hops one after the other, whether all gather)."""
  specs = [policy.VariableSpec('', shape) for shape in shapes]
  workers = network.workers
  between = algorithms.Network(network.bandwidth, network.latency)
  code = registry.method(text, workers)
  codec = bucketing.gradient_codec(specs, [code] * len(specs))
  chain = workers - 1
  # The row of probes goes before.
  num_bytes, hops, gathers = 4 * codec.num_probes * chain, chain, False
  for number in range(codec.num_rounds):
    messages = codec.messages(number)
    chosen = algorithms.choices(messages, workers, workers, network=between)
    for message, algorithm in zip(messages, chosen, strict=True):
      words = algorithms.sent_words(message, workers, workers)[algorithm]
      num_bytes += 4 * words
      hops += algorithms.hops(algorithm, workers)
      gathers |= algorithm == algorithms.GATHER
  return num_bytes, hops, gathers


def table(texts, shapes, computing, network, costs, overlap=0.0):
  """All codes beside each other, the fastest step first.

  Args:
    texts: codes as `--codec` spells them; that of float32 is always there.
    shapes: see `plan`.
    computing: see `plan`.
    network: `Network`.
    costs: dict of text to `Coding`.
    overlap: see `plan`.

  Returns:
    `pandas.DataFrame` with the parts in seconds, the speed-up over float32 and
    the bandwidth, in Mbit/s, at which float32 would be as fast: above it the
    code does not pay; infinite where it always does, 0 where it never does.
  """
  rows = []
  base = plan(FLOAT32, shapes, computing, network, costs[FLOAT32], overlap)
  for text in dict.fromkeys([FLOAT32, *texts]):
    own = plan(text, shapes, computing, network, costs[text], overlap)
    even = break_even(
      lambda rate, text=text: (
        plan(name, shapes, computing, faster(network, rate), costs[name]).step
        for name in (text, FLOAT32)
      )
    )
    rows.append(
      {
        'codec': text,
        'computing': own.computing,
        'coding': own.coding,
        'wire': own.wire,
        'hidden': own.hidden,
        'step': own.step,
        'speed-up': base.step / own.step,
        'pays below Mbit/s': even / 1e6 if text != FLOAT32 else float('nan'),
      }
    )
  return pd.DataFrame(rows).sort_values('step', kind='stable')


def faster(network, bandwidth):
  """The `Network` with another bandwidth."""
  return network._replace(bandwidth=bandwidth)


def break_even(times, low=1e5, high=1e13):
  """The bandwidth at which two step times are equal.

  Args:
    times: takes bits a second, returns the two times, the first of which gains
      less from bandwidth.
    low: bits a second.
    high: likewise.

  Returns:
    Bits a second; infinity where the first is less even at `high`, 0 where it
    is not at `low`.
  """

  def wins(rate):
    own, other = times(rate)
    return own < other

  if wins(high):
    return math.inf
  if not wins(low):
    return 0.0
  while high / low > 1.001:
    middle = math.sqrt(low * high)
    low, high = (middle, high) if wins(middle) else (low, middle)
  return low


def chart(texts, shapes, computing, network, costs, overlap=0.0):
  """Step times over bandwidth and over workers, a `figure.Figure`."""
  drawn = figure.Figure(figsize=(12, 5), layout='constrained')
  left, right = drawn.subplots(1, 2, sharey=True)
  for text in dict.fromkeys([FLOAT32, *texts]):

    def seconds(changed, text=text):
      return plan(text, shapes, computing, changed, costs[text], overlap).step

    left.plot(
      [rate / 1e6 for rate in _BANDWIDTHS],
      [seconds(faster(network, rate)) for rate in _BANDWIDTHS],
      label=text,
    )
    right.plot(
      _WORKERS,
      [seconds(network._replace(workers=count)) for count in _WORKERS],
      label=text,
    )
  for axes, label in (
    (left, f'Mbit/s, {network.workers} workers'),
    (right, f'workers, {network.bandwidth / 1e6:g} Mbit/s'),
  ):
    axes.axhline(computing, color='black', linewidth=0.5, linestyle='--')
    axes.set(xscale='log', yscale='log', xlabel=label)
  left.set_ylabel('seconds a step; dashed: computing alone')
  right.legend(fontsize='small')
  return drawn
