"""Buckets: the variables that are coded together."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import transport


class Bucket(NamedTuple):
  """The variables that one method codes together.

  Attributes:
    method: codes them.
    indices: index of each variable in the model.
    shapes: shape of each variable.
    num_probes: length of each variable's probe.
    num_elements: number of elements of all variables.
    stream: random keys are derived from it. Buckets that are cut from one
      bucket have the same.
    start: number of elements of the uncut bucket before this one.
    part: index of the part that sends the bucket; see `parts`.
    fragment: index of the fragment of the bucket; see `fragments`.
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

  def select(self, positions: Sequence[int]) -> 'Bucket':
    """Selects variables by ascending indices; the caller sets `start`."""
    sizes = methods.sizes_of(self.shapes)
    return self._replace(
      indices=tuple(self.indices[position] for position in positions),
      shapes=tuple(self.shapes[position] for position in positions),
      num_probes=tuple(self.num_probes[position] for position in positions),
      num_elements=sum(sizes[position] for position in positions),
    )

  def messages(self, number: int) -> Sequence[methods.Message]:
    """The messages of round `number`; () after the last round."""
    if number >= self.method.num_rounds:
      return ()
    return self.method.messages(self.shapes)[number]

  def num_words(self, number: int) -> int:
    """Number of int32 words of all messages of round `number`."""
    return sum(message.num_words for message in self.messages(number))

  def carried_values(self, values: methods.Tensors) -> list[tf.Tensor]:
    """Returns what a worker carried: int32 words, or float32 gradients."""
    if self.method.carries:
      return list(map(transport.to_int32, values))
    return list(values)

  @property
  def states(self) -> tuple[methods.State, ...]:
    """The declarations of the method's states for these variables."""
    return self.method.states(self.shapes)
