"""The algorithms that move a message between processes, and which to take.

`gather` sends every worker's words to all. `reduce` adds the words of packings
that add (`radix`) in TensorFlow's ring all-reduce. `two_shot` gives every
process a slice of the words of all, which it sums; the sums are packed as
digits of 2N + 1 levels and gathered. `slices` does the same for floats, whose
sums return as float32. None of them rounds: what is decoded are the same sums.
What is declared to be scattered always is.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from terngrad.codec import method as methods
from terngrad.exchange import gathering
from terngrad.exchange import sums

AUTO, GATHER = 'auto', 'gather'
# Those to choose from: what is scattered has no choice.
NAMES = (GATHER, sums.REDUCE, sums.TWO_SHOT, sums.SLICES)
# Seconds of computing an element, measured on two cores of an AMD EPYC with 16
# million elements (ternary, float32) and rounded. A gather decodes the words of
# every worker; what is summed on its way is unpacked and packed again.
_DECODE_MORE = 3e-10
_WORK = {sums.REDUCE: 2e-9, sums.TWO_SHOT: 5e-9, sums.SLICES: 3e-9}


class Network(NamedTuple):
  """What joins processes, as far as a choice depends on it.

  Attributes:
    bandwidth: bits a second, of a process in either direction.
    latency: seconds from one process to another.
  """

  bandwidth: float = 1e9
  latency: float = 5e-5


GIGABIT = Network()


def choices(
  messages: Sequence[methods.Message],
  num_workers: int,
  num_processes: int,
  algorithm: str = AUTO,
  network: Network = GIGABIT,
) -> list[str]:
  """The algorithm of each message.

  Args:
    messages: of a round.
    num_workers: of all processes.
    num_processes: P.
    algorithm: of `NAMES` for the messages that can take it, the others gather;
      or `AUTO`, for each message that of the least time by `seconds`.
    network: the same in all processes.

  Returns:
    For each of `NAMES`, or `sums.SCATTER`.
  """
  chosen = []
  for message in messages:
    times = seconds(message, num_workers, num_processes, network)
    best = min(times, key=times.__getitem__) if algorithm == AUTO else algorithm
    chosen.append(best if best in times else next(iter(times)))
  return chosen


def seconds(
  message: methods.Message,
  num_workers: int,
  num_processes: int,
  network: Network,
) -> dict[str, float]:
  """What a message takes by each algorithm, by a model of its parts.

  Words on the wire, hops one after the other, and what is computed beside what
  every algorithm computes. All that is gathered travels together, so that its
  hops count for no message.

  Args:
    message: of a round.
    num_workers: of all processes.
    num_processes: P.
    network: between the processes.

  Returns:
    By name, see `sent_words`.
  """
  found = {}
  for name, words in sent_words(message, num_workers, num_processes).items():
    found[name] = (
      32 * words / network.bandwidth
      + (0 if name == GATHER else hops(name, num_processes)) * network.latency
      + _WORK.get(name, _DECODE_MORE * (num_workers - 1)) * message.num_elements
    )
  return found


def hops(name: str, num_processes: int) -> int:
  """How often a message of an algorithm waits for another process."""
  chain = num_processes - 1
  known = {GATHER: chain, sums.REDUCE: 2 * chain, sums.SCATTER: min(1, chain)}
  return known.get(name, chain + 1)


def told(
  messages: Sequence[methods.Message],
  num_workers: int,
  num_processes: int,
  algorithm: str,
  network: Network,
) -> str:
  """A line for people: what travels how, and why.

  Args:
    messages: of a step.
    num_workers: of all processes.
    num_processes: P.
    algorithm: see `choices`.
    network: between the processes.
  """
  names = choices(messages, num_workers, num_processes, algorithm, network)
  known = num_workers, num_processes
  parts = []
  for name in dict.fromkeys(names):
    own = [m for m, n in zip(messages, names, strict=True) if n == name]
    costs = [sent_words(m, *known) for m in own]
    times = [seconds(m, *known, network) for m in own]
    others = [
      f'{other} {_milliseconds(times, other)}'
      for other in NAMES
      if other != name and any(other in one for one in times)
    ]
    beside = f', beside {", ".join(others)}' if others else ''
    parts.append(
      f'{name} {sum(4e-6 * cost[name] for cost in costs):.3g} MB '
      f'{_milliseconds(times, name)}{beside}'
    )
  return (
    f'exchange: {"; ".join(parts)} (a step and process, by the model of '
    f'{network.bandwidth / 1e6:g} Mbit/s and {network.latency * 1e6:g} us)'
  )


def _milliseconds(times: Sequence[Mapping[str, float]], name: str) -> str:
  """Those of messages by an algorithm, or each by its first."""
  total = sum(one.get(name, next(iter(one.values()))) for one in times)
  return f'{1e3 * total:.3g} ms'


def sent_words(
  message: methods.Message, num_workers: int, num_processes: int
) -> dict[str, float]:
  """What a process sends for a message, and receives, by each algorithm.

  Args:
    message: of a round.
    num_workers: of all processes.
    num_processes: P.

  Returns:
    By name, those that are open to the message, words of 32 bits; the expected
    number where it varies. 'gather' comes first, or is left out where the
    message is scattered.
  """
  own = num_workers // num_processes
  costs: dict[str, float] = {}
  if message.combine != methods.SCATTER:
    words = gathering.expected_words(message)
    costs[GATHER] = (num_processes - 1) * own * words
  for name, algorithm in sums.ALGORITHMS.items():
    if algorithm.fits(message, num_workers):
      costs[name] = algorithm.sent_words(message, num_workers, num_processes)
  return costs
