"""The messages that workers send in a round; `received` has the results."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import float_words
from terngrad.codec.stages import packing as packings
from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.codec.stages import wire

# Values of `Message.combine`.
SUM, GATHER, SCATTER = 'sum', 'gather', 'scatter'

AnyPacking = wire.Packing | wire.VariablePacking | wire.CompositePacking


class Message(NamedTuple):
  """The declaration of one int32 tensor that each worker sends in a round.

  Attributes:
    combine: SUM: receivers need only the sum over the workers. Integers may be
      added in any order; floats are added as float32 in the order of the
      workers. GATHER: receivers need the words of every worker. SCATTER: the
      words consist of one equal part per worker, and each worker needs its part
      from every worker.
    num_words: words of one worker's message, including words that are not sent.
    num_elements: elements to sum; 0 for GATHER and SCATTER.
    packing: for SUM, how words hold the elements: `wire.Packing` or
      `wire.VariablePacking`. For GATHER and SCATTER, what counts the words in
      use, or None.
    levels: for SUM of integers, their largest magnitude; None for floats.
  """

  combine: str
  num_words: int
  num_elements: int = 0
  packing: AnyPacking | None = None
  levels: int | None = None

  @property
  def sum_packing(self) -> wire.Packing | wire.VariablePacking:
    """`packing` of a message that can be summed.

    Raises:
      ValueError: the message cannot be summed.
    """
    if isinstance(self.packing, wire.Packing | wire.VariablePacking):
      return self.packing
    raise ValueError(
      'message: expected one whose elements can be summed, received '
      f'{self.combine} of {self.num_words} words. Read it as Payloads.'
    )

  @property
  def sum_levels(self) -> int:
    """`levels` of a sum of integers.

    Raises:
      ValueError: the message does not contain integers to sum.
    """
    if self.levels is None:
      raise ValueError(
        f'message: expected integers to sum, received {self.combine} of '
        f'{self.num_elements} floats. Add them as float32.'
      )
    return self.levels

  def packing_of_sums(self, num_workers: int) -> wire.Packing:
    """Returns the packing of sums of the codes of this many workers."""
    return packings.sums(num_workers * self.sum_levels)

  def dtype_of_sums(self, num_workers: int) -> tf.DType:
    """Returns the narrowest dtype that holds a sum of codes."""
    return tf.int8 if num_workers * self.sum_levels < 128 else tf.int32

  def unpacked_sums(
    self, words: tf.Tensor, num_workers: int
  ) -> list[tf.Tensor]:
    """Returns the planes of sums of codes, from words of `packing_of_sums`.

    int32 planes are returned as float32, see `transport`. The planes are
    concatenated outside of compiled code, because XLA compiles the
    concatenation to a branch per element.
    """
    packing = self.packing_of_sums(num_workers)
    dtype = self.dtype_of_sums(num_workers)

    # A traced step calls this once per device.
    @tracing.compiled
    def unpack(words: tf.Tensor) -> list[tf.Tensor]:
      planes = packing.unpack(transport.to_int32(words))
      return [transport.to_float32(tf.cast(plane, dtype)) for plane in planes]

    return unpack(words)

  def sent_words(self, words: tf.Tensor) -> tf.Tensor:
    """Returns how many words of each message [..., num_words] are sent.

    The words are int32, or float32 as in `transport`. The result is int32
    [...].
    """
    if self.packing is None:
      return wire.all_words(words)
    return self.packing.sent_words(words)

  @property
  def expected_words(self) -> float:
    """The mean number of words that are sent; see `coded.Code.bits`."""
    if self.packing is None or not self.num_elements:
      return self.num_words
    return self.packing.expected_words(self.num_elements)


# For each round, its messages.
Rounds = Sequence[Sequence[Message]]


def float_sum(num_elements: int) -> Message:
  """Returns a message of this many float32 elements to sum."""
  return code_sum(float_words.float32_words(), num_elements)


def code_sum(
  packing: wire.Packing | wire.VariablePacking,
  num_elements: int,
  levels: int | None = None,
) -> Message:
  """Returns a message of elements to sum.

  Args:
    packing: of the elements.
    num_elements: how many there are.
    levels: largest magnitude of integers; None for floats.
  """
  words = packing.num_words(num_elements)
  return Message(SUM, words, num_elements, packing, levels)


def gathered(num_words: int, packing: AnyPacking | None = None) -> Message:
  """Returns a message of this many words that all workers get from all."""
  return Message(GATHER, num_words, packing=packing)
