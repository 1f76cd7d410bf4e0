"""The algorithms that move a message between processes, and which to take.

`gather` sends every worker's words to all. `reduce` adds the words of packings
that add (`radix`) in TensorFlow's ring all-reduce. `two_shot` gives every
process a slice of the words of all, which it sums; the sums are packed as
digits of 2N + 1 levels and gathered. `slices` does the same for floats, whose
sums return as float32. None of them rounds: what is decoded are the same sums.
What is declared to be scattered always is.
"""

from terngrad.codec import method as methods
from terngrad.exchange import gathering
from terngrad.exchange import sums

AUTO, GATHER = 'auto', 'gather'
# Those to choose from: what is scattered has no choice.
NAMES = (GATHER, sums.REDUCE, sums.TWO_SHOT, sums.SLICES)
# What a word of an algorithm counts for when one is chosen. Those of two shots
# are unpacked, added and packed again on their way: with 4 hosts on 1 Gbit/s
# that took 1 s more than a gather of a third more words (experiments/network).
_WEIGHTS = {sums.TWO_SHOT: 2}
# Words that must be saved: all that is gathered travels together, and all else
# takes round trips of its own. 16 kB take 130 us at 1 Gbit/s.
_LEAST_SAVED = 2**12


def choices(messages, num_workers, num_processes, algorithm=AUTO):
  """The algorithm of each message.

  Args:
    messages: list of `codec.method.Message`.
    num_workers: of all processes.
    num_processes: P.
    algorithm: of `NAMES` for the messages that can take it, the others gather;
      or `AUTO`, for each message that of the fewest bytes, but two shots only
      where they take half of the others'. Small messages gather.

  Returns:
    List of names of `NAMES`, or `sums.SCATTER`.
  """
  chosen = []
  for message in messages:
    costs = sent_words(message, num_workers, num_processes)
    otherwise = next(iter(costs))
    if algorithm == AUTO:
      chosen.append(_cheapest(costs, otherwise))
    else:
      chosen.append(algorithm if algorithm in costs else otherwise)
  return chosen


def _cheapest(costs, otherwise):
  """The algorithm that `AUTO` takes, from what `sent_words` returns."""
  weighed = {
    name: words * _WEIGHTS.get(name, 1) for name, words in costs.items()
  }
  best = min(weighed, key=weighed.get)
  saved = weighed[otherwise] - weighed[best]
  return best if saved > _LEAST_SAVED else otherwise


def sent_words(message, num_workers, num_processes):
  """What a process sends for a message, and receives, by each algorithm.

  Args:
    message: `codec.method.Message`.
    num_workers: of all processes.
    num_processes: P.

  Returns:
    dict of a name, those that are open to the message, to float, words of 32
    bits; the expected number where it varies. 'gather' comes first, or is left
    out where the message is scattered.
  """
  own = num_workers // num_processes
  costs = {}
  if message.combine != methods.SCATTER:
    words = gathering.expected_words(message)
    costs[GATHER] = (num_processes - 1) * own * words
  for name, algorithm in sums.ALGORITHMS.items():
    if algorithm.fits(message, num_workers):
      costs[name] = algorithm.sent_words(message, num_workers, num_processes)
  return costs
