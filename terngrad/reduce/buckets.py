"""The variables that are coded together."""

from collections.abc import Sequence
from typing import NamedTuple

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
