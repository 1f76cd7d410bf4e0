"""What a worker sends and receives in a step, by every algorithm, counted."""

from collections.abc import Iterable
from collections.abc import Sequence

import pandas as pd

from terngrad.codec import totals
from terngrad.exchange import algorithms
from terngrad.measure import gradient_codecs

_MEGABYTE = 2**20


def table(
  texts: Iterable[str],
  shapes: Sequence[Sequence[int]],
  counts: Sequence[int],
) -> pd.DataFrame:
  """A row for every code and number of workers, each a process of its own.

  A process sends and receives the same, in MB (2**20 bytes) a step: by gather
  alone, by each algorithm where it can be used and gather elsewhere, and by
  those that `--communication=auto` chooses; and with one parameter server what
  it pushes and pulls. Lengths that vary are those that are expected.

  Args:
    texts: codes as `--codec` spells them.
    shapes: of the variables.
    counts: numbers of workers, >= 1.

  Raises:
    ValueError: a text names no method.
  """
  return pd.DataFrame(
    [_row(text, shapes, workers) for text in texts for workers in counts]
  )


def _row(
  text: str, shapes: Sequence[Sequence[int]], workers: int
) -> dict[str, str | float]:
  codec = gradient_codecs.of_text(text, shapes, workers)
  rounds = [codec.messages(number) for number in range(codec.num_rounds)]
  messages = [message for own in rounds for message in own]
  costs = [algorithms.sent_words(m, workers, workers) for m in messages]
  chosen = algorithms.choices(messages, workers, workers)
  # Every message's own first one is gather, unless the message is scattered.
  by_algorithm = {
    name: sum(cost.get(name, next(iter(cost.values()))) for cost in costs)
    for name in algorithms.NAMES
    if name == algorithms.GATHER or any(name in cost for cost in costs)
  }
  auto = sum(cost[name] for cost, name in zip(costs, chosen, strict=True))
  return {
    'codec': text,
    'workers': workers,
    'bits/element': codec.bits(workers) / codec.num_elements,
    **{name: _megabytes(count) for name, count in by_algorithm.items()},
    'auto': _megabytes(auto),
    'by': ', '.join(dict.fromkeys(chosen)),
    'push': _megabytes(sum(m.expected_words for m in messages)),
    'pull': _megabytes(
      sum(totals.Totals(own, workers, 1).bits() / 32 for own in rounds)
    ),
  }


def _megabytes(words: float) -> float:
  return 4 * words / _MEGABYTE
