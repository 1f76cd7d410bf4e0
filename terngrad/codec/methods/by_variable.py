"""Codes of single variables: a payload is theirs, one after the other."""

import abc
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple
from typing import cast

import tensorflow as tf

from terngrad.codec import coded
from terngrad.codec import method
from terngrad.codec.methods import few_elements
from terngrad.codec.stages import chain
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import wire
from terngrad.native import ops
from terngrad.native import sparse_ops

# Of codes that round to what is nearest, and of those that draw.
FIXED = contract.Traits(
  unbiased=False, lossless=False, additive=False, randomness='none'
)
DRAWN = contract.Traits(
  unbiased=True, lossless=False, additive=False, randomness='private'
)


class ByVariable(wire.CompositePacking, coded.Code):
  """A code of how one variable is coded, by itself; it is its own packing.

  Nothing is agreed on; probes are norms, which show what is not finite. A
  subclass defines `num_words`, of a variable, `encode_variable`, `planes` and
  `check`.
  """

  traits = FIXED
  scope = contract.VARIABLE
  agrees = False

  # Codes of stages choose them, this one is its only stage.
  @property
  def stages(self) -> Sequence[contract.Stage]:  # type: ignore[override]
    """See `coded.Code`."""
    return (self,)

  @abc.abstractmethod
  def encode_variable(
    self, values: tf.Tensor, draws: Callable[[], tf.Tensor]
  ) -> tf.Tensor:
    """int32 words of a variable.

    Args:
      values: float32 [n], n >= 1.
      draws: returns uint32 [n], random bits of each element.
    """

  def encode_pieces(
    self,
    pieces: Sequence[tf.Tensor],
    sizes: Sequence[int],
    own: tf.Tensor,
    shared: tf.Tensor,
    key: tf.Tensor,
  ) -> tf.Tensor:
    """See `coded.Code`."""
    del own, shared  # each variable is coded alone
    whole = len(pieces) == len(sizes)
    variables = pieces if whole else tf.split(pieces[0], sizes)
    words, start = [], 0
    for values, size in zip(variables, sizes, strict=True):
      if size:
        words.append(self.encode_variable(values, _draws(key, start, size)))
      start += size
    return tf.concat(words, axis=0) if words else tf.zeros([0], tf.int32)

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """See `coded.Code`."""
    sizes = method.sizes_of(shapes)
    if not sum(sizes):
      return [tf.zeros(shape) for shape in shapes]
    sums = self.sum_variables(_Variables(self, sizes), parts)
    return chain.gradients_of(None, sums, shared, shapes, scale)

  def sum_variables(
    self, variables: '_Variables', parts: Sequence[tf.Tensor]
  ) -> tf.Tensor:
    """float32 [elements]: the sum in the order of the workers."""
    return wire.sum_planes(variables, parts, sum(variables.sizes))


class FewElements(ByVariable):
  """A code whose words tell of few elements, which are added by themselves.

  A subclass defines `elements` in place of `planes`.
  """

  compiled = False  # see `topk.largest`

  @abc.abstractmethod
  def elements(
    self, words: tf.Tensor, num_elements: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """(int32 [k] indices, float32 [k] values) of a variable's words.

    The index is n where there is none; safe for any words. Those of a payload
    that an encoder made are each another.
    """

  def planes(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """See `wire.CompositePacking`."""
    return few_elements.scattered(
      *self.elements(words, num_elements), num_elements
    )

  def sum_variables(
    self, variables: '_Variables', parts: Sequence[tf.Tensor]
  ) -> tf.Tensor:
    """See `ByVariable`."""
    size = sum(variables.sizes)
    wire.check_length(variables, parts, size)
    return few_elements.sum_rows(parts, variables.elements, size)


class NativeElements(FewElements):
  """With a kernel that adds elements, and one for norms."""

  probe = staticmethod(ops.norms)

  def decode_sum(
    self,
    parts: Sequence[tf.Tensor],
    shared: tf.Tensor,
    shapes: method.Shapes,
    scale: float = 1.0,
  ) -> list[tf.Tensor]:
    """See `coded.Code`."""
    del shared
    variables = _Variables(self, method.sizes_of(shapes))
    wire.check_length(variables, parts, sum(variables.sizes))
    indices, values = few_elements.rows(parts, variables.elements)
    return sparse_ops.add_elements(indices, values, shapes, scale)


def _draws(key: tf.Tensor, start: int, size: int) -> Callable[[], tf.Tensor]:
  """A function that gives the random bits of a variable's elements."""

  def draws() -> tf.Tensor:
    positions = tf.bitcast(tf.range(start, start + size), tf.uint32)
    return random_bits.element_bits(key[:2], positions)

  return draws


class _Variables(NamedTuple):
  """The payloads of all variables of a bucket, for `wire.sum_planes`."""

  code: ByVariable
  sizes: list[int]

  @property
  def name(self) -> str:
    """For messages."""
    return self.code.name

  def num_words(self, num_elements: int) -> int:
    """int32 numbers of a payload."""
    del num_elements
    return self.code.words_of(self.sizes)

  def planes(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """float32 [num_elements]."""
    del num_elements
    pairs = zip(self._split(words), self.sizes, strict=True)
    return tf.concat([self.code.planes(p, n) for p, n in pairs if n], axis=0)

  def elements(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(int32 [k] indices in the bucket, float32 [k]) of `FewElements`."""
    if not sum(self.sizes):
      return tf.zeros([0], tf.int32), tf.zeros([0])
    code = cast(FewElements, self.code)
    indices, values, start = [], [], 0
    for own, size in zip(self._split(words), self.sizes, strict=True):
      if size:
        where, what = code.elements(own, size)
        nowhere = tf.constant(sum(self.sizes))
        indices.append(tf.where(where < size, where + start, nowhere))
        values.append(what)
      start += size
    return tf.concat(indices, axis=0), tf.concat(values, axis=0)

  def _split(self, words: tf.Tensor) -> list[tf.Tensor]:
    return tf.split(words, [self.code.num_words(n) for n in self.sizes])
