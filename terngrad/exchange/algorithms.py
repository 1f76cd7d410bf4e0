"""The algorithms that move a message between processes, and which to take.

`gather` sends every worker's words to all. `reduce` adds the words of packings
that add (`radix`) in TensorFlow's ring all-reduce. `two_shot` gives every
process a slice of the words of all, which it sums; the sums are packed as
digits of 2N + 1 levels and gathered. `slices` does the same for floats, whose
sums return as float32. None of them rounds: what is decoded are the same sums.
Only `two_shot_ternary`, which must be asked for, does: its sums return as
ternary codes, see `feedback`.
"""

from terngrad.exchange import feedback
from terngrad.exchange import gathering
from terngrad.exchange import sums

AUTO, GATHER, LOSSY = 'auto', 'gather', 'two_shot_ternary'
SUMMED = {**sums.ALGORITHMS, LOSSY: feedback.ALGORITHM}
NAMES = (GATHER, *SUMMED)
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
      where they take half of the others', and never `LOSSY`. Small messages
      gather.

  Returns:
    List of names of `NAMES`.
  """
  chosen = []
  for message in messages:
    costs = sent_words(message, num_workers, num_processes)
    if algorithm == AUTO:
      chosen.append(_cheapest(costs))
    else:
      chosen.append(algorithm if algorithm in costs else GATHER)
  return chosen


def _cheapest(costs):
  """The algorithm that `AUTO` takes, from what `sent_words` returns."""
  weighed = {
    name: words * _WEIGHTS.get(name, 1)
    for name, words in costs.items()
    if name != LOSSY
  }
  best = min(weighed, key=weighed.get)
  return best if weighed[GATHER] - weighed[best] > _LEAST_SAVED else GATHER


def sent_words(message, num_workers, num_processes):
  """What a process sends for a message, and receives, by each algorithm.

  Args:
    message: `codec.method.Message`.
    num_workers: of all processes.
    num_processes: P.

  Returns:
    dict of a name of `NAMES`, those that are open to the message, 'gather'
    first, to float, words of 32 bits; the expected number where it varies.
  """
  own = num_workers // num_processes
  words = gathering.expected_words(message)
  costs = {GATHER: (num_processes - 1) * own * words}
  for name, algorithm in SUMMED.items():
    if algorithm.fits(message, num_workers):
      costs[name] = algorithm.sent_words(message, num_workers, num_processes)
  return costs


def residual_shapes(codec, num_workers, num_processes, algorithm):
  """Shapes of what a process keeps for the messages of a codec's first round.

  Args:
    codec: `codec.gradients.GradientCodec` of one part.
    num_workers: of all processes.
    num_processes: P.
    algorithm: see `choices`.

  Returns:
    List of tuple of int, one a message; () where nothing is kept. Methods of
    several rounds go on from sums that were rounded to nothing: they gather.
  """
  messages = codec.messages(0)
  if codec.num_rounds > 1:
    return [()] * len(messages)
  chosen = choices(messages, num_workers, num_processes, algorithm)
  return [
    feedback.residual_shape(message, num_processes) if name == LOSSY else ()
    for message, name in zip(messages, chosen, strict=True)
  ]
