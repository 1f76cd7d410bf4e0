"""What a worker sends and receives in a step, by every algorithm, counted."""

import pandas as pd

from terngrad.codec import policy
from terngrad.codec import totals
from terngrad.codec.methods import registry
from terngrad.exchange import algorithms
from terngrad.reduce import bucketing

_MEGABYTE = 2**20


def table(texts, shapes, counts):
  """A row for every code and number of workers, each a process of its own.

  A process sends and receives the same, in MB (2**20 bytes) a step: by gather
  alone, by each algorithm where it can be used and gather elsewhere, and by
  those that `--communication=auto` chooses; and with one parameter server what
  it pushes and pulls. Lengths that vary are those that are expected.

  Args:
    texts: codes as `--codec` spells them.
    shapes: list of tuple of int, of the variables.
    counts: numbers of workers, int >= 1.

  Returns:
    `pandas.DataFrame`.

  Raises:
    ValueError: a text names no method.
  """
  specs = [policy.VariableSpec(str(i), shape) for i, shape in enumerate(shapes)]
  return pd.DataFrame(
    [_row(text, specs, workers) for text in texts for workers in counts]
  )


def _row(text, specs, workers):
  method = registry.method(text, workers)
  codec = bucketing.gradient_codec(specs, [method] * len(specs))
  rounds = [codec.messages(number) for number in range(codec.num_rounds)]
  messages = [message for own in rounds for message in own]
  costs = [algorithms.sent_words(m, workers, workers) for m in messages]
  chosen = algorithms.choices(messages, workers, workers)
  row = {
    'codec': text,
    'workers': workers,
    'bits/element': codec.bits(workers) / codec.num_elements,
  }
  # Every message's own first one, which is gather but for what is scattered.
  otherwise = [next(iter(cost.values())) for cost in costs]
  for algorithm in algorithms.NAMES:
    if algorithm == algorithms.GATHER or any(
      algorithm in cost for cost in costs
    ):
      pairs = zip(costs, otherwise, strict=True)
      words = [cost.get(algorithm, other) for cost, other in pairs]
      row[algorithm] = _megabytes(words)
  auto = [
    cost[algorithm] for cost, algorithm in zip(costs, chosen, strict=True)
  ]
  row['auto'] = _megabytes(auto)
  row['by'] = ', '.join(dict.fromkeys(chosen))
  row['push'] = _megabytes([m.expected_words for m in messages])
  pulled = [totals.Totals(own, workers, 1).bits() / 32 for own in rounds]
  row['pull'] = _megabytes(pulled)
  return row


def _megabytes(words):
  return 4 * sum(words) / _MEGABYTE
