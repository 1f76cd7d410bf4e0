"""The algorithms that move a message between processes, and their choice.

- `gather` sends every worker's words to all processes.
- `reduce` adds words that can be added (packing `radix`) with TensorFlow's ring
  all-reduce.
- `two_shot` sends each process one slice of the words of all workers. The
  process adds its slice, packs the sums as digits of 2 N + 1 levels and gathers
  them.
- `slices` does the same for floats and returns float32 sums.

No algorithm rounds: the decoded sums are bit-identical. SCATTER messages always
use all-to-all.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from terngrad import aliases
from terngrad.codec import method as methods
from terngrad.exchange import gathering
from terngrad.exchange import sums

AUTO, GATHER = 'auto', 'gather'
# The algorithms that a user can choose; SCATTER messages have only one.
NAMES = (GATHER, sums.REDUCE, sums.TWO_SHOT, sums.SLICES)
# Compute time in seconds per element, measured on two cores of an AMD EPYC with
# 16 million elements (ternary, float32) and rounded. `gather` decodes the words
# of every worker; the others unpack the words, add them and pack the sums.
_DECODE = 3e-10
_COMPUTE = {sums.REDUCE: 2e-9, sums.TWO_SHOT: 5e-9, sums.SLICES: 3e-9}


class Link(NamedTuple):
  """The link between processes, for the choice of an algorithm.

  Attributes:
    bandwidth: bits per second of one process, in each direction.
    latency: seconds from one process to another.
    adds_integers: False if the collectives cannot add int32, as on GPUs: words
      that could be added are gathered or sent in two shots.
  """

  bandwidth: float = 1e9
  latency: float = 5e-5
  adds_integers: bool = True


GIGABIT = Link()
__getattr__ = aliases.renamed_names(
  __name__, told='describe_plan', Network='Link'
)


def choices(
  messages: Sequence[methods.Message],
  num_workers: int,
  num_processes: int,
  algorithm: str = AUTO,
  network: Link = GIGABIT,
) -> list[str]:
  """Chooses the algorithm of each message.

  Args:
    messages: of a round.
    num_workers: of all processes.
    num_processes: P.
    algorithm: one of `NAMES`; messages that do not support it are gathered.
      `AUTO` takes the algorithm with the least `seconds` for each message.
    network: must be the same in all processes.

  Returns:
    For each message one of `NAMES`, or `sums.SCATTER`.
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
  network: Link,
) -> dict[str, float]:
  """Estimates the time that each algorithm needs for a message.

  The model adds the time on the wire, the sequential hops and the computation
  that other algorithms do not have. All gathered messages are sent together, so
  the hops of `gather` are not counted.

  Args:
    message: of a round.
    num_workers: of all processes.
    num_processes: P.
    network: between the processes.

  Returns:
    Seconds by algorithm, for the algorithms that support the message.
  """
  found = {}
  for name, words in sent_words(message, num_workers, num_processes).items():
    if name == sums.REDUCE and not network.adds_integers:
      continue
    found[name] = (
      32 * words / network.bandwidth
      + (0 if name == GATHER else hops(name, num_processes)) * network.latency
      + _COMPUTE.get(name, _DECODE * (num_workers - 1)) * message.num_elements
    )
  return found


def adding_seconds(name: str, message: methods.Message) -> float:
  """Estimates the time to unpack, add and pack the words of a message.

  Args:
    name: the algorithm; `gather` adds nothing.
    message: of a round.
  """
  return _COMPUTE.get(name, 0.0) * message.num_elements


def hops(name: str, num_processes: int) -> int:
  """Returns how many sequential transfers an algorithm needs."""
  chain = num_processes - 1
  known = {GATHER: chain, sums.REDUCE: 2 * chain, sums.SCATTER: min(1, chain)}
  return known.get(name, chain + 1)


def describe_plan(
  messages: Sequence[methods.Message],
  num_workers: int,
  num_processes: int,
  algorithm: str,
  network: Link,
) -> str:
  """Returns a log line: the chosen algorithms with megabytes and milliseconds.

  Args:
    messages: of a step.
    num_workers: of all processes.
    num_processes: P.
    algorithm: as in `choices`.
    network: between the processes.
  """
  names = choices(messages, num_workers, num_processes, algorithm, network)
  counts = num_workers, num_processes
  parts = []
  for name in dict.fromkeys(names):
    chosen = [m for m, n in zip(messages, names, strict=True) if n == name]
    costs = [sent_words(m, *counts) for m in chosen]
    times = [seconds(m, *counts, network) for m in chosen]
    others = [
      f'{other} in {_milliseconds(times, other)}'
      for other in NAMES
      if other != name and any(other in one for one in times)
    ]
    instead = f' (instead of {", ".join(others)})' if others else ''
    parts.append(
      f'{name} {sum(4e-6 * cost[name] for cost in costs):.3g} MB in '
      f'{_milliseconds(times, name)}{instead}'
    )
  return (
    f'exchange: {"; ".join(parts)} (per step and process, estimated for '
    f'{network.bandwidth / 1e6:g} Mbit/s and {network.latency * 1e6:g} us)'
  )


def _milliseconds(times: Sequence[Mapping[str, float]], name: str) -> str:
  """Formats the total time of messages by an algorithm.

  A message that does not support it counts with its first algorithm.
  """
  total = sum(one.get(name, next(iter(one.values()))) for one in times)
  return f'{1e3 * total:.3g} ms'


def sent_words(
  message: methods.Message, num_workers: int, num_processes: int
) -> dict[str, float]:
  """Returns what a process sends for a message (and receives), by algorithm.

  Args:
    message: of a round.
    num_workers: of all processes.
    num_processes: P.

  Returns:
    32-bit words by algorithm, for the algorithms that support the message; the
    expected number if the length varies. 'gather' comes first; SCATTER messages
    have no 'gather'.
  """
  nodes = num_workers // num_processes
  costs: dict[str, float] = {}
  if message.combine != methods.SCATTER:
    words = gathering.expected_words(message)
    costs[GATHER] = (num_processes - 1) * nodes * words
  for name, algorithm in sums.ALGORITHMS.items():
    if algorithm.fits(message, num_workers):
      costs[name] = algorithm.sent_words(message, num_workers, num_processes)
  return costs
