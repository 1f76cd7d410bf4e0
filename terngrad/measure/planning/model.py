"""Predicts step times on another network from a model of their parts.

A step consists of computing, coding and transfer. Coding time is proportional
to the number of elements; that of `reduce`, `two_shot` and `slices` includes
their adding. The number of bytes is what the exchanges count. Each hop of a
message waits for `latency`, one hop after the other: P - 1 hops for a gather, P
for `two_shot` and `slices`, 2 (P - 1) for a ring, 1 for a scatter.
Transfers that overlap with computing (`overlap`) are hidden. With local steps
the workers exchange once in `local_steps` steps, and each step has its share.
"""

import bisect
import functools
import math
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import pandas as pd

from terngrad.codec import method as methods
from terngrad.exchange import algorithms
from terngrad.exchange import gathering
from terngrad.measure import gradient_codecs

FLOAT32 = 'identity'
# Bandwidths that `break_even` compares first, six for each power of ten.
_NUM_COARSE = 49
# Bandwidths of its search between two of them, each 0.04 % above the last.
_NUM_BANDWIDTHS = 2**10 + 1
# More make workers drift apart too far.
MOST_LOCAL_STEPS = 10_000
# Columns of `table` that others read.
STEP, NOISE, LIMIT = 'step s', '± s', 'pays below Mbit/s'
WAITING, ENOUGH = 'waiting', 'local steps to wait < 10 %'
# Codecs to compare with: common elsewhere, and the smallest in PyTorch.
RIVALS = {'fp16': 'fp16', 'PowerSGD': 'error_feedback+powersgd:rank=1'}


class Network(NamedTuple):
  """The network between the workers, each of which is a separate process.

  Attributes:
    bandwidth: bits per second of a process, in each direction.
    latency: seconds from one process to another.
    workers: number of workers, P.
    efficiency: fraction of the bandwidth that carries payload, in (0, 1].
  """

  bandwidth: float
  latency: float
  workers: int
  efficiency: float = 1.0

  @property
  def payload(self) -> float:
    """Bits of payload per second of a process, in each direction."""
    return self.bandwidth * self.efficiency


class Coding(NamedTuple):
  """Coding costs in seconds per element.

  Attributes:
    send: encodes all messages of one worker.
    receive: decodes the mean of two workers' messages.
    more: decodes the messages of each further worker, if they are gathered.
    spread: half the interquartile range of the timed rounds, divided by their
      lower quartile; 0 if it is not known.
    adding: factor on the seconds that algorithms other than a gather need to
      add (`algorithms.adding_seconds`), for slower or faster cores.
  """

  send: float
  receive: float
  more: float
  spread: float = 0.0
  adding: float = 1.0


class Plan(NamedTuple):
  """The parts of a step, in seconds; of a local step its share of an exchange.

  Attributes:
    computing: forward pass, backward pass and update.
    coding: encoding, decoding, and the adding of algorithms other than a
      gather.
    wire: transfer and latencies, including the hidden part.
    hidden: the part of `wire` that overlaps with computing.
  """

  computing: float
  coding: float
  wire: float
  hidden: float

  @property
  def step(self) -> float:
    """Total step time in seconds."""
    return self.computing + self.coding + self.wire - self.hidden

  @property
  def waiting(self) -> float:
    """Share of the step in which the worker does not compute, in [0, 1)."""
    return 1 - self.computing / self.step if self.step else 0.0


def plan(
  text: str,
  shapes: Sequence[tuple[int, ...]],
  computing: float,
  network: Network,
  cost: Coding,
  overlap: float = 0.0,
  row_bytes: float = 0.0,
  local_steps: int = 1,
  statistics: float = 0.0,
  fragments: int = 1,
) -> Plan:
  """Predicts the step time with a codec.

  Args:
    text: codec in the syntax of `--codec`.
    shapes: shapes of the variables.
    computing: seconds of a worker's step without exchange.
    network: the network between the workers.
    cost: coding costs of the codec.
    overlap: fraction of the computing of a step during which messages may be
      transferred, in [0, 1]. With 1, messages overlap with all computing
      between two exchanges: these are applied one exchange later, as with
      `overlap='delayed'` of `terngrad.LocalSteps`.
    row_bytes: bytes of a worker's sparse gradients, which every other worker
      gets uncompressed. They are not in `shapes`.
    local_steps: steps from one exchange to the next.
    statistics: moving statistics, as of batch normalization, which every other
      worker gets as float32 with the probes.
    fragments: an exchange is that of one of so many fragments: it has its share
      of the bytes and of the coding, and all latencies.
  """
  traffic = traffic_of(text, tuple(shapes), network)
  num_bytes, hops = traffic.num_bytes, traffic.hops
  num_bytes += (network.workers - 1) * 4 * statistics
  if row_bytes:
    # Values and indices are gathered one after the other.
    num_bytes += (network.workers - 1) * row_bytes
    hops += 2 * (network.workers - 1)
  size = sum(methods.sizes_of(shapes))
  others = max(0, network.workers - 2) if traffic.gathers else 0
  coded = (cost.send + cost.receive + others * cost.more) * size
  coded += cost.adding * traffic.adding
  coded /= fragments
  wire = 8 * num_bytes / fragments / network.payload + hops * network.latency
  # Buckets overlap with the pass of the last local step only.
  overlapped = local_steps if overlap == 1 else overlap
  hidden = min(wire, overlapped * computing)
  return Plan(
    computing, *(part / local_steps for part in (coded, wire, hidden))
  )


def fewest_local_steps(
  plan_of: Callable[[int], Plan], waiting: float = 0.1
) -> int | None:
  """Finds the fewest local steps that keep waiting below a share of the time.

  Args:
    plan_of: maps local steps to a plan.
    waiting: the share, in (0, 1).

  Returns:
    Local steps, at most `MOST_LOCAL_STEPS`; None if more are needed.
  """
  found = bisect.bisect_left(
    range(1, MOST_LOCAL_STEPS + 1),
    True,
    key=lambda steps: plan_of(steps).waiting < waiting,
  )
  return found + 1 if found < MOST_LOCAL_STEPS else None


class Traffic(NamedTuple):
  """What the exchange of a step needs.

  Attributes:
    encoded: bytes that a worker encodes.
    num_bytes: bytes that a process sends.
    hops: sequential transfers.
    adding: seconds in which algorithms other than a gather unpack, add and pack
      words.
    gathers: whether messages are gathered.
  """

  encoded: float
  num_bytes: float
  hops: int
  adding: float
  gathers: bool


@functools.cache
def traffic_of(
  text: str, shapes: tuple[tuple[int, ...], ...], network: Network
) -> Traffic:
  """Computes what the exchange of a step needs in collective mode.

  Args:
    text: codec in the syntax of `--codec`.
    shapes: shapes of the variables.
    network: the network between the workers.
  """
  workers = network.workers
  between = algorithms.Link(network.payload, network.latency)
  codec = gradient_codecs.build(text, shapes, workers)
  messages = [
    message
    for number in range(codec.num_rounds)
    for message in codec.messages(number)
  ]
  chosen = algorithms.choices(messages, workers, workers, network=between)
  encoded = words = adding = 0.0
  for message, name in zip(messages, chosen, strict=True):
    encoded += gathering.expected_words(message)
    words += algorithms.sent_words(message, workers, workers)[name]
    adding += algorithms.adding_seconds(name, message)
  # The probes are gathered first.
  row_hops = workers - 1
  return Traffic(
    4 * (codec.num_probes + encoded),
    4 * (codec.num_probes * row_hops + words),
    row_hops + sum(algorithms.hops(name, workers) for name in chosen),
    adding,
    algorithms.GATHER in chosen,
  )


def table(
  texts: Iterable[str],
  shapes: Sequence[tuple[int, ...]],
  computing: float,
  network: Network,
  costs: Mapping[str, Coding],
  overlap: float = 0.0,
  row_bytes: float = 0.0,
  local_steps: int = 1,
  statistics: float = 0.0,
) -> pd.DataFrame:
  """Compares codecs, the fastest step first.

  Args:
    texts: codecs in the syntax of `--codec`; float32 is always added.
    shapes: as for `plan`.
    computing: as for `plan`.
    network: as for `plan`.
    costs: coding costs, by the codecs' texts.
    overlap: as for `plan`.
    row_bytes: as for `plan`.
    local_steps: as for `plan`.
    statistics: as for `plan`.

  Returns:
    One row per codec: step, its parts and the noise of its coding (`spread`) in
    seconds; the share of the step that is waiting, and `fewest_local_steps`,
    <NA> if none are enough; the speed-up over float32 and over the given codecs
    that are in `RIVALS`; and the bandwidth, in Mbit/s, at which float32 is as
    fast. The codec pays off below that bandwidth: it is infinite if the codec
    always pays off, 0 if it never does, NaN for float32 and for a codec that
    pays off only above some bandwidth.
  """

  def planned_on(text: str, changed: Network, steps: int = local_steps) -> Plan:
    return plan(
      *(text, shapes, computing, changed, costs[text]),
      *(overlap, row_bytes, steps, statistics),
    )

  def limit(text: str) -> float:
    def steps(bandwidth: float) -> list[float]:
      changed = set_bandwidth(network, bandwidth)
      return [planned_on(one, changed).step for one in (text, FLOAT32)]

    return break_even(steps)

  plans = {
    text: planned_on(text, network) for text in dict.fromkeys([FLOAT32, *texts])
  }
  rows = [
    _row(text, plans, costs[text])
    | {
      ENOUGH: fewest_local_steps(functools.partial(planned_on, text, network)),
      LIMIT: math.nan if text == FLOAT32 else limit(text) / 1e6,
    }
    for text in plans
  ]
  found = pd.DataFrame(rows).astype({ENOUGH: 'Int64'})
  return found.sort_values(STEP, kind='stable')


def _row(text: str, plans: Mapping[str, Plan], cost: Coding) -> dict[str, Any]:
  """Returns what a row of `table` takes from the plans."""
  planned = plans[text]
  return {
    'codec': text,
    STEP: planned.step,
    NOISE: cost.spread * planned.coding,
    **{f'{part} s': value for part, value in planned._asdict().items()},
    WAITING: planned.waiting,
    **{
      f'over {name}': plans[base].step / planned.step
      for name, base in {'float32': FLOAT32, **RIVALS}.items()
      if base in plans
    },
  }


def set_bandwidth(network: Network, bandwidth: float) -> Network:
  """Returns the network with another bandwidth."""
  return network._replace(bandwidth=bandwidth)


def break_even(
  times: Callable[[float], Iterable[float]],
  low: float = 1e5,
  high: float = 1e13,
) -> float:
  """Finds the bandwidth below which the first step time is the shorter one.

  Args:
    times: maps bits per second to two step times.
    low: lowest bandwidth of the search, in bits per second.
    high: highest bandwidth of the search, in bits per second.

  Returns:
    Bits per second, within 0.1 %: the lowest at which the times are equal.
    Infinity if the first time is shorter at all bandwidths that are compared,
    0 if it is at none. NaN if it is not shorter at `low` but above, as of a
    code that sends more bytes and computes less.
  """

  def is_slower(bandwidth: float) -> bool:
    first, second = times(bandwidth)
    return first >= second

  coarse = np.geomspace(low, high, _NUM_COARSE)
  slower = [is_slower(bandwidth) for bandwidth in coarse]
  if all(slower) or not any(slower):
    return 0.0 if slower[0] else math.inf
  if slower[0]:
    return math.nan
  first = slower.index(True)
  found = np.geomspace(coarse[first - 1], coarse[first], _NUM_BANDWIDTHS)
  index = bisect.bisect_left(found, True, key=is_slower)
  return float(found[max(0, index - 1)])
