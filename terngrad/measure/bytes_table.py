"""Bytes that a worker sends and receives per step, for every algorithm."""

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
  """Computes one row for every codec and number of workers.

  Each worker is a separate process, which sends as much as it receives. Columns
  are in MB (2**20 bytes) per step: with gather only; with each algorithm where
  it applies and gather elsewhere; with the algorithms that
  `--communication=auto` chooses; and, with one parameter server, what a worker
  pushes and pulls. Expected values are used for messages of variable length.

  Args:
    texts: codecs in the syntax of `--codec`.
    shapes: shapes of the variables.
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
  codec = gradient_codecs.build(text, shapes, workers)
  rounds = [codec.messages(number) for number in range(codec.num_rounds)]
  messages = [message for group in rounds for message in group]
  costs = [algorithms.sent_words(m, workers, workers) for m in messages]
  chosen = algorithms.choices(messages, workers, workers)
  # A message's first algorithm is gather, unless the message is scattered.
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
      sum(totals.Totals(group, workers, 1).bits() / 32 for group in rounds)
    ),
  }


def _megabytes(words: float) -> float:
  return 4 * words / _MEGABYTE
