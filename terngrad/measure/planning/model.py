"""What a step would take on another network, by a model of its parts.

A step is computing, coding and the wire. Coding grows with the elements; bytes
are those that the exchanges count; a message waits `latency` for every hop one
after the other: P - 1 of a gather, one more of two shots and slices, 2 (P - 1)
of a ring, one of what is scattered. What travels while the backward pass goes
on (`overlap`) is hidden.
"""

import bisect
import functools
import math
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from terngrad.codec import method as methods
from terngrad.exchange import algorithms
from terngrad.measure import gradient_codecs

FLOAT32 = 'identity'
# What others send, and PyTorch's thinnest: columns of their own.
# Among which `break_even` searches, each 0.06 % above the one before.
_RATES = 2**15 + 1
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
  def step(self) -> float:
    """All of it."""
    return self.computing + self.coding + self.wire - self.hidden


def plan(
  text: str,
  shapes: Sequence[tuple[int, ...]],
  computing: float,
  network: Network,
  cost: Coding,
  overlap: float = 0.0,
) -> Plan:
  """What a step takes with a code.

  Args:
    text: as `--codec` spells it.
    shapes: of the variables.
    computing: seconds of a worker's step without exchange.
    network: between the workers.
    cost: of the code.
    overlap: part of the computing during which messages may travel, in [0, 1].
  """
  num_bytes, hops, gathers = _wire(text, tuple(shapes), network)
  size = sum(methods.sizes_of(shapes))
  others = max(0, network.workers - 2) if gathers else 0
  coded = (cost.send + cost.receive + others * cost.more) * size
  wire = 8 * num_bytes / network.bandwidth + hops * network.latency
  return Plan(computing, coded, wire, min(wire, overlap * computing))


@functools.cache
def _wire(
  text: str, shapes: tuple[tuple[int, ...], ...], network: Network
) -> tuple[float, int, bool]:
  """(bytes a process sends, hops one after the other, whether all gather)."""
  workers = network.workers
  between = algorithms.Network(network.bandwidth, network.latency)
  codec = gradient_codecs.of_text(text, shapes, workers)
  messages = [
    message
    for number in range(codec.num_rounds)
    for message in codec.messages(number)
  ]
  chosen = algorithms.choices(messages, workers, workers, network=between)
  words = sum(
    algorithms.sent_words(message, workers, workers)[algorithm]
    for message, algorithm in zip(messages, chosen, strict=True)
  )
  # The row of probes goes before.
  row_hops = workers - 1
  num_bytes = 4 * (codec.num_probes * row_hops + words)
  hops = row_hops + sum(algorithms.hops(name, workers) for name in chosen)
  return num_bytes, hops, algorithms.GATHER in chosen


def table(
  texts: Iterable[str],
  shapes: Sequence[tuple[int, ...]],
  computing: float,
  network: Network,
  costs: Mapping[str, Coding],
  overlap: float = 0.0,
) -> pd.DataFrame:
  """All codes beside each other, the fastest step first.

  Args:
    texts: codes as `--codec` spells them; that of float32 is always there.
    shapes: see `plan`.
    computing: see `plan`.
    network: see `plan`.
    costs: of the codes, by their texts.
    overlap: see `plan`.

  Returns:
    The parts in seconds, the speed-up over float32 and over those of `RIVALS`
    that are among the codes, and the bandwidth, in Mbit/s, at which float32
    would be as fast: above it the code does not pay; infinite where it always
    does, 0 where it never does.
  """
  plans = {
    text: plan(text, shapes, computing, network, costs[text], overlap)
    for text in dict.fromkeys([FLOAT32, *texts])
  }

  def even(text: str) -> float:
    return break_even(
      lambda rate: (
        plan(name, shapes, computing, faster(network, rate), costs[name]).step
        for name in (text, FLOAT32)
      )
    )

  rows = [
    {
      'codec': text,
      **own._asdict(),
      'step': own.step,
      **{
        f'over {name}': plans[base].step / own.step
        for name, base in {'float32': FLOAT32, **RIVALS}.items()
        if base in plans
      },
      'pays below Mbit/s': math.nan if text == FLOAT32 else even(text) / 1e6,
    }
    for text, own in plans.items()
  ]
  return pd.DataFrame(rows).sort_values('step', kind='stable')


def faster(network: Network, bandwidth: float) -> Network:
  """The network with another bandwidth."""
  return network._replace(bandwidth=bandwidth)


def break_even(
  times: Callable[[float], Iterable[float]],
  low: float = 1e5,
  high: float = 1e13,
) -> float:
  """The bandwidth at which two step times are equal, to a thousandth.

  Args:
    times: takes bits a second, returns the two times, the first of which gains
      less from bandwidth.
    low: bits a second.
    high: likewise.

  Returns:
    Bits a second; infinity where the first is less even at `high`, 0 where it
    is not at `low`.
  """

  def loses(rate: float) -> bool:
    own, other = times(rate)
    return own >= other

  rates = np.geomspace(low, high, _RATES)
  place = bisect.bisect_left(rates, True, key=loses)
  return [0.0, *rates[:-1].tolist(), math.inf][place]
