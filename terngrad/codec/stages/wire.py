"""What a packing is: codes or floats to words and back."""

import abc

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import planes
from terngrad.codec.stages.payloads import Planes as Planes
from terngrad.codec.stages.payloads import check_length as check_length
from terngrad.codec.stages.payloads import concat as concat
from terngrad.codec.stages.payloads import join as join
from terngrad.codec.stages.payloads import pack_bytes as pack_bytes
from terngrad.codec.stages.payloads import sum_planes as sum_planes
from terngrad.codec.stages.payloads import sum_unpacked as sum_unpacked
from terngrad.codec.stages.payloads import unpack_bytes as unpack_bytes

# Where a payload's length varies, positions of bits must fit in int32 whatever
# the payload claims.
MAX_VARIABLE_ELEMENTS = 2**28


class Fixed(contract.Stage):
  """A packing to WORDS of which all are sent.

  Attributes:
    levels: the largest code that fits; None for packings of floats.
    max_workers: of how many workers words may be added as integers that wrap
      around, so that `unpack` gives the sum of codes, -1 for each worker but
      the first; None where sums of words mean nothing.
  """

  levels: int | None = None
  max_workers: int | None = None

  @abc.abstractmethod
  def num_words(self, num_elements: int) -> int:
    """int32 numbers in a payload."""

  def expected_words(self, num_elements: int) -> float:
    """int32 numbers that are sent: all."""
    return self.num_words(num_elements)

  def sent_words(self, words: tf.Tensor) -> tf.Tensor:
    """int32 [...]: for each payload of int32 [..., w] how many are sent."""
    return all_words(words)


class InPlanes(contract.Stage):
  """CODES or FLOAT in k planes to WORDS; see `planes`.

  Attributes:
    elements_per_word: k, the number of planes.
    traits: see `contract.Traits`; None for packings of codes.
    fill: the code that places past the last element unpack to.
  """

  elements_per_word: int
  traits: contract.Traits | None = None
  fill: int = 0
  domain = (contract.CODES, contract.WORDS)

  def width(self, num_elements: int) -> int:
    """Elements of a plane."""
    return -(-num_elements // self.elements_per_word)


class Packing(InPlanes, Fixed):
  """CODES or FLOAT to WORDS of a fixed number: k elements in each word.

  Attributes:
    word_bits: 32, or 64: two int32 side by side, the low half first.
    digits: (base, k) where a word is k digits of a base, digit = code + 1, the
      first the lowest; None for other words.
  """

  word_bits: int = 32
  digits: tuple[int, int] | None = None

  @abc.abstractmethod
  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """int32 [w] words of k planes [w]; [2 w] where words have 64 bits."""

  @abc.abstractmethod
  def unpack(self, words: tf.Tensor) -> Planes:
    """The inverse of `pack`, also of a sum of words: k planes [w]."""

  def num_words(self, num_elements: int) -> int:
    """int32 numbers in a payload."""
    return self.width(num_elements) * self.word_bits // 32

  def lanes(self, words: tf.Tensor) -> tf.Tensor:
    """Payloads as the numbers that workers may add.

    Args:
      words: int32 [..., w], payloads.

    Returns:
      int32 [..., w], or int64 [..., w / 2] where words have 64 bits: sums wrap
      around and need no wider type.

    Raises:
      ValueError: words do not add.
    """
    if self.max_workers is None:
      raise ValueError(
        f'lanes: expected a packing whose words add, received {self.name}. Use '
        'packing=radix, or gather the payloads and call decode_sum.'
      )
    if self.word_bits == 32:
      return words
    pairs = tf.concat([tf.shape(words)[:-1], [words.shape[-1] // 2, 2]], axis=0)
    return tf.bitcast(tf.reshape(words, pairs), tf.int64)

  def sums_of_total(self, total: tf.Tensor, num_workers: int) -> tf.Tensor:
    """The sums of codes, from the sum of the `lanes` of payloads.

    Args:
      total: int32 or int64 [lanes].
      num_workers: whose payloads were added.

    Returns:
      int32 [places], those past the last element included.

    Raises:
      ValueError: words hold no sum of so many.
    """
    most = self.max_workers or 0
    if num_workers > most:
      raise ValueError(
        f'{self.name}: expected the payloads of at most {most} '
        f'workers, received {num_workers}. Make the codec with '
        f'workers={num_workers}.'
      )
    words = tf.reshape(tf.bitcast(total, tf.int32), [-1])
    # Every worker's digit is its code + 1; unpacking takes one 1 away.
    return join(self.unpack(words)) - (num_workers - 1)

  def planes(self, words: tf.Tensor, num_elements: int) -> Planes:
    """`unpack`, for payloads of any kind."""
    return self.unpack(words)

  def pack_flat(self, values: tf.Tensor) -> tf.Tensor:
    """int32 words of int32 or float32 [n], in the order of the planes."""
    width = self.width(values.shape[0])
    places = range(self.elements_per_word)
    return self.pack([planes.plane(values, p, width) for p in places])

  def unpack_flat(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """The inverse of `pack_flat`: int32 or float32 [num_elements]."""
    return join(self.unpack(words))[:num_elements]


class VariablePacking(InPlanes):
  """CODES to WORDS of a number that depends on the codes.

  Compiled code and loops want one shape. So a payload has `capacity` words for
  every gradient of a size, its first word says how many are used, and those
  after them are zero and need not be sent.

  Attributes:
    levels: the largest code that fits; None for packings of floats.
    max_workers: see `Fixed`: sums of words mean nothing.
  """

  levels: int | None = 1
  max_workers: int | None = None

  @abc.abstractmethod
  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """The words of k planes [w], int32 [capacity]."""

  @abc.abstractmethod
  def unpack(self, words: tf.Tensor, width: int) -> Planes:
    """The k planes [w] of int32 [capacity].

    Words that `pack` did not make give some codes, read nothing else and end.
    """

  @abc.abstractmethod
  def capacity(self, width: int) -> int:
    """The largest number of words of planes [w]."""

  def used(self, first: tf.Tensor) -> tf.Tensor:
    """int32 [...]: how many words are used, of payloads' first word."""
    return first

  @abc.abstractmethod
  def expected(self, num_elements: int) -> float:
    """Words used on average, for codes of the density it was made for."""

  def check(self, words: np.ndarray, width: int) -> None:
    """Raises ValueError for what `pack` cannot have made.

    As far as decoding and packing again does not show it.

    Args:
      words: NumPy int32 [capacity].
      width: w.
    """

  def num_words(self, num_elements: int) -> int:
    """int32 numbers in a payload, used or not."""
    if num_elements > MAX_VARIABLE_ELEMENTS:
      raise ValueError(
        f'{self.name}: expected a bucket of at most {MAX_VARIABLE_ELEMENTS} '
        f'elements, received {num_elements}. Use packing=base3.'
      )
    return self.capacity(self.width(num_elements))

  def expected_words(self, num_elements: int) -> float:
    """int32 numbers that are sent, on average."""
    return self.expected(num_elements)

  def sent_words(self, words: tf.Tensor) -> tf.Tensor:
    """int32 [...]: for each payload of int32 [..., w] how many are sent."""
    return self.used(words[..., 0])

  def planes(self, words: tf.Tensor, num_elements: int) -> Planes:
    """`unpack`, for payloads of any kind."""
    return self.unpack(words, self.width(num_elements))


class OfDensity(VariablePacking):
  """A packing of codes in {-1, 0, 1} whose length depends on their density."""

  def __init__(self, density: float) -> None:
    """Takes the expected part of codes that are not 0; see `expected`."""
    self._density = density

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """See `VariablePacking`: of no codes the first word alone."""
    return self.pack_codes(planes) if planes[0].shape[0] else tf.constant([1])

  @abc.abstractmethod
  def pack_codes(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """`pack` of planes that are not empty."""

  def unpack(self, words: tf.Tensor, width: int) -> Planes:
    """See `VariablePacking`."""
    if width:
      return self.unpack_codes(words, width)
    return [tf.zeros([0], tf.int32)] * self.elements_per_word

  @abc.abstractmethod
  def unpack_codes(self, words: tf.Tensor, width: int) -> Planes:
    """`unpack` of planes that are not empty."""


class CompositePacking(Fixed):
  """FLOAT to WORDS of several kinds: scales or places, and codes or values.

  Its `num_words` is of a bucket, or of a variable where that is the scope.
  """

  domain = (contract.FLOAT, contract.WORDS)

  @abc.abstractmethod
  def planes(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """float32 [n] of int32 words of n >= 1 elements; safe for any words."""

  @abc.abstractmethod
  def check(
    self, words: np.ndarray, num_elements: int
  ) -> tuple[Packing, np.ndarray, int] | None:
    """Raises ValueError for what no encoder can have made.

    Args:
      words: NumPy int32 [num_words].
      num_elements: >= 1.

    Returns:
      (packing, words, elements) of the codes among the words, which must be
      checked too; None where there are none.
    """


def all_words(words: tf.Tensor) -> tf.Tensor:
  """What `sent_words` counts where every word is sent.

  Args:
    words: int32 [..., w], payloads.

  Returns:
    int32 [...], w for each payload.
  """
  return tf.fill(tf.shape(words)[:-1], words.shape[-1])
