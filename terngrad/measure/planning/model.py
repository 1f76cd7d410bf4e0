"""What a step would take on another network, by a model of its parts.

A step is computing, coding and the wire. Coding grows with the elements; bytes
are those that the exchanges count; a message waits `latency` for every hop one
after the other: P - 1 of a gather, one more of two shots and slices, 2 (P - 1)
of a ring, one of what is scattered. What travels while the backward pass goes
on (`overlap`) is hidden.
"""

import functools
import math
from typing import NamedTuple

import pandas as pd

from terngrad.codec import method as methods
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.exchange import algorithms
from terngrad.reduce import bucketing

FLOAT32 = 'identity'
# What others send, and PyTorch's thinnest: columns of their own.
RIVALS = {'fp16': 'fp16', 'PowerSGD': 'error_feedback+powersgd:rank=1'}


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
    over those of `RIVALS` that are among the codes, and the bandwidth, in
    Mbit/s, at which float32 would be as fast: above it the code does not pay;
    infinite where it always does, 0 where it never does.
  """
  rows = []
  plans = {
    text: plan(text, shapes, computing, network, costs[text], overlap)
    for text in dict.fromkeys([FLOAT32, *texts])
  }
  bases = {'float32': FLOAT32, **RIVALS}
  for text, own in plans.items():
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
        **{
          f'over {name}': plans[base].step / own.step
          for name, base in bases.items()
          if base in plans
        },
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
