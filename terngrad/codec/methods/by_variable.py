"""Base classes of codes that encode each variable separately.

A payload consists of the words of its variables, one after the other.
"""

import abc
import functools
from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import coded
from terngrad.codec import method
from terngrad.codec.methods import few_elements
from terngrad.codec.stages import chain
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import transport
from terngrad.codec.stages import wire

# Traits of codes that round to nearest, and of codes that round at random.
DETERMINISTIC = contract.Traits(
  unbiased=False, lossless=False, additive=False, randomness='none'
)
RANDOM = contract.Traits(
  unbiased=True, lossless=False, additive=False, randomness='private'
)


class ByVariable(wire.CompositePacking, coded.Code):
  """A code that encodes each variable separately; it is also the packing.

  The workers agree on nothing. The probe contains the norm of each variable,
  which shows values that are not finite. A subclass defines `num_words` of a
  variable, `encode_variable`, `planes` and `check`.
  """

  traits = DETERMINISTIC
  scope = contract.VARIABLE
  agrees = False

  # Chains set this attribute; this code is its only stage.
  @property
  def stages(self) -> Sequence[contract.Stage]:  # type: ignore[override]
    """The stages: this code itself."""
    return (self,)

  @abc.abstractmethod
  def encode_variable(
    self, values: tf.Tensor, draws: Callable[[], tf.Tensor]
  ) -> tf.Tensor:
    """Encodes a variable to int32 words.

    Args:
      values: float32 [n], n >= 1.
      draws: returns uint32 [n], random bits for each element.
    """

  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    local_probe: tf.Tensor,
    shared_probe: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """Encodes each variable and joins the words; see `coded.Code`."""
    is_split = len(pieces) == len(sizes)
    variables = pieces if is_split else tf.split(pieces[0], sizes)
    starts = method.starts_of(sizes)
    draws = functools.partial(random_bits.range_bits, key)
    words = [
      self.encode_variable(values, functools.partial(draws, size, start))
      for values, size, start in zip(variables, sizes, starts, strict=True)
      if size
    ]
    return tf.concat(words, axis=0) if words else tf.zeros([0], tf.int32)

  @transport.accepts_float32
  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared_probe: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """Decodes and adds the payloads of all workers; see `coded.Code`."""
    sizes = method.sizes_of(shapes)
    if not sum(sizes):
      return [tf.zeros(shape) for shape in shapes]
    wire.check_length(self.name, self.words_of(sizes), parts, sum(sizes))
    sums = wire.sum_unpacked(lambda row: self._unpacked(row, sizes), parts)
    return chain.gradients_of(None, sums, shared_probe, shapes, scale)

  def _unpacked(self, words: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
    """Decodes the words of all variables to float32 [elements]."""
    pairs = zip(self.split(words, sizes), sizes, strict=True)
    return tf.concat([self.planes(p, n) for p, n in pairs if n], axis=0)

  def split(self, words: tf.Tensor, sizes: Sequence[int]) -> list[tf.Tensor]:
    """Splits a payload into the words of each variable."""
    return tf.split(words, list(map(self.num_words, sizes)))


class FewElementsByVariable(few_elements.FewElements, ByVariable):
  """A code whose words contain a few elements of each variable.

  A subclass defines `elements` instead of `planes`.
  """

  @abc.abstractmethod
  def elements(
    self, words: tf.Tensor, num_elements: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Unpacks (int32 [k] indices, float32 [k] values) of a variable's words.

    The index n marks an unused entry; see `bucket_elements`.
    """

  def planes(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """Decodes to float32 [n], with zeros at the other elements."""
    return few_elements.to_dense(
      *self.elements(words, num_elements), num_elements
    )

  def bucket_elements(
    self, words: tf.Tensor, sizes: Sequence[int]
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Unpacks the elements of all variables, with indices in the bucket."""
    if not sum(sizes):
      return tf.zeros([0], tf.int32), tf.zeros([0])
    parts, starts = self.split(words, sizes), method.starts_of(sizes)
    found = []
    for part, size, start in zip(parts, sizes, starts, strict=True):
      if size:
        local, value = self.elements(part, size)
        unused = tf.constant(sum(sizes))
        found.append((tf.where(local < size, local + start, unused), value))
    indices, values = zip(*found, strict=True)
    return tf.concat(indices, axis=0), tf.concat(values, axis=0)
