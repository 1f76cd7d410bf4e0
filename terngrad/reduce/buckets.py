"""The variables that are coded together, and where their numbers are."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from terngrad.codec import method as methods


class Bucket(NamedTuple):
  """The variables that one method codes together.

  Attributes:
    method: `method.Method`.
    indices: tuple of int, the variables' indices in the model.
    shapes: tuple of their shapes.
    num_probes: tuple, how many numbers of the probe are of each.
    num_elements: of all of them.
    stream: the number that its keys are derived by, the same for all buckets
      that were one before they were cut.
    start: elements of that one before this bucket's.
    part: see `parts`.
    fragment: see `fragments`.
  """

  method: methods.Method
  indices: tuple[int, ...]
  shapes: tuple[tuple[int, ...], ...]
  num_probes: tuple[int, ...]
  num_elements: int
  stream: int = 0
  start: int = 0
  part: int = 0
  fragment: int = 0

  def only(self, places: Sequence[int]) -> 'Bucket':
    """The bucket of some of its variables.

    Args:
      places: list of int, ascending, which of its variables.

    Returns:
      A `Bucket`; where the first stands among the elements is its caller's.
    """
    sizes = methods.sizes_of(self.shapes)
    return self._replace(
      indices=tuple(self.indices[place] for place in places),
      shapes=tuple(self.shapes[place] for place in places),
      num_probes=tuple(self.num_probes[place] for place in places),
      num_elements=sum(sizes[place] for place in places),
    )

  def messages(self, number: int) -> Sequence[methods.Message]:
    """The tuple of `method.Message` of a round; () after the last."""
    if number >= self.method.num_rounds:
      return ()
    return self.method.messages(self.shapes)[number]

  def num_words(self, number: int) -> int:
    """Words of all messages of a round."""
    return sum(message.num_words for message in self.messages(number))

  @property
  def states(self) -> tuple[methods.State, ...]:
    """Tuple of `method.State`."""
    return self.method.states(self.shapes)


class Layout(NamedTuple):
  """Where the buckets' numbers are among those of a model.

  Attributes:
    variables: list of int, the variables that are coded, ascending.
    places: for each of them its place among those of the buckets.
    probed: int [probes], for each number of the probe its variable.
    probes: for each bucket int [its probes], places in the probe.
    order: int [probes], from the order of the buckets to that of the probe.
    messages: for each round and bucket the slice of its messages.
    words: for each round and bucket the slice of its words.
  """

  variables: list[int]
  places: list[int]
  probed: np.ndarray
  probes: list[np.ndarray]
  order: np.ndarray
  messages: list[list[slice]]
  words: list[list[slice]]


def layout(buckets: Sequence[Bucket]) -> Layout:
  """The `Layout` of buckets."""
  order = [i for bucket in buckets for i in bucket.indices]
  variables = sorted(order)
  counts = dict(
    zip(order, (n for b in buckets for n in b.num_probes), strict=True)
  )
  each = [counts[i] for i in variables]
  ends = dict(zip(variables, np.cumsum(each), strict=True))
  probes = [
    np.concatenate([np.arange(ends[i] - counts[i], ends[i]) for i in b.indices])
    for b in buckets
  ]
  rounds = range(max((b.method.num_rounds for b in buckets), default=0))
  return Layout(
    variables=variables,
    places=[order.index(i) for i in variables],
    probed=np.repeat(variables, each),
    probes=probes,
    order=np.argsort(np.concatenate([[], *probes])),
    messages=[_slices([len(b.messages(n)) for b in buckets]) for n in rounds],
    words=[_slices([b.num_words(n) for b in buckets]) for n in rounds],
  )


def _slices(sizes: Sequence[int]) -> list[slice]:
  """Slices of such sizes, one after the other."""
  ends = itertools.accumulate(sizes)
  return [slice(end - n, end) for n, end in zip(sizes, ends, strict=True)]
