"""Packings: they convert codes or floats to words and back."""

import abc

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import planes
from terngrad.codec.stages import transport
from terngrad.codec.stages.payloads import Planes as Planes
from terngrad.codec.stages.payloads import check_length as check_length
from terngrad.codec.stages.payloads import concat as concat
from terngrad.codec.stages.payloads import join as join
from terngrad.codec.stages.payloads import pack_bytes as pack_bytes
from terngrad.codec.stages.payloads import sum_planes as sum_planes
from terngrad.codec.stages.payloads import sum_unpacked as sum_unpacked
from terngrad.codec.stages.payloads import unpack_bytes as unpack_bytes

# In payloads of variable length, bit offsets must fit in int32, even for
# corrupted payloads.
MAX_VARIABLE_ELEMENTS = 2**28


class Fixed(contract.Stage):
  """A packing whose words are all sent.

  Attributes:
    levels: the largest code that fits; None for packings of floats.
    max_workers: number of workers whose words may be added as integers, with
      wraparound. `unpack` of the sum then gives the sum of codes plus the
      number of workers minus 1. None if words cannot be added.
  """

  levels: int | None = None
  max_workers: int | None = None

  @abc.abstractmethod
  def num_words(self, num_elements: int) -> int:
    """Returns the int32 words of a payload."""

  def expected_words(self, num_elements: int) -> float:
    """Returns the int32 words that are sent: all of them."""
    return self.num_words(num_elements)

  def sent_words(self, words: tf.Tensor) -> tf.Tensor:
    """Counts the sent words of payloads int32 [..., w]: int32 [...], all w."""
    return all_words(words)


class InPlanes(contract.Stage):
  """A packing of CODES or FLOAT in k planes; `planes` defines the layout.

  Attributes:
    elements_per_word: k, the number of planes.
    traits: properties of packings of floats; None for packings of codes.
    fill: the code to which positions past the last element unpack.
  """

  elements_per_word: int
  traits: contract.Traits | None = None
  fill: int = 0
  domain = (contract.CODES, contract.WORDS)

  def width(self, num_elements: int) -> int:
    """Returns the elements of a plane."""
    return -(-num_elements // self.elements_per_word)


class Packing(InPlanes, Fixed):
  """A packing to a fixed number of words, k elements per word.

  Attributes:
    word_bits: 32, or 64 for two adjacent int32, the lower half first.
    digits: (base, k) if a word consists of k digits of a base, the first digit
      lowest, with digit = code + 1; None for other words.
  """

  word_bits: int = 32
  digits: tuple[int, int] | None = None

  @abc.abstractmethod
  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """Packs k planes [w] to int32 [w], or [2 w] if words have 64 bits."""

  @abc.abstractmethod
  def unpack(self, words: tf.Tensor) -> Planes:
    """Unpacks words, or sums of words, to k planes [w]."""

  def num_words(self, num_elements: int) -> int:
    """Returns the int32 words of a payload."""
    return self.width(num_elements) * self.word_bits // 32

  def lanes(self, words: tf.Tensor) -> tf.Tensor:
    """Converts payloads to the integers that workers may add.

    Args:
      words: int32 [..., w], payloads, or float32 as in `transport`.

    Returns:
      int32 [..., w], or int64 [..., w / 2] if words have 64 bits. Sums wrap
      around and need no wider type.

    Raises:
      ValueError: words of this packing cannot be added.
    """
    if self.max_workers is None:
      raise ValueError(
        'lanes: expected a packing whose words can be added, received '
        f'{self.name}. Use packing=radix, or gather the payloads and call '
        'decode_sum.'
      )
    if self.word_bits == 32:
      return transport.to_int32(words)
    pairs = tf.concat([tf.shape(words)[:-1], [words.shape[-1] // 2, 2]], axis=0)
    return tf.bitcast(tf.reshape(words, pairs), tf.int64)

  def sums_of_total(self, total: tf.Tensor, num_workers: int) -> tf.Tensor:
    """Unpacks the sums of codes from the sum of `lanes`.

    Args:
      total: int32 or int64 [lanes].
      num_workers: number of payloads that were added.

    Returns:
      int32 [k w], including positions past the last element.

    Raises:
      ValueError: words cannot hold the sum of so many payloads.
    """
    most = self.max_workers or 0
    if num_workers > most:
      raise ValueError(
        f'{self.name}: expected the payloads of at most {most} '
        f'workers, received {num_workers}. Create the codec with '
        f'workers={num_workers}.'
      )
    words = tf.reshape(tf.bitcast(total, tf.int32), [-1])
    # Every worker's digit is its code + 1; unpacking subtracts a single 1.
    return join(self.unpack(words)) - (num_workers - 1)

  def planes(self, words: tf.Tensor, num_elements: int) -> Planes:
    """Unpacks a payload; the same signature as in other packings."""
    return self.unpack(words)

  def pack_flat(self, values: tf.Tensor) -> tf.Tensor:
    """Packs int32 or float32 [n], in the order of planes, to int32 words."""
    width = self.width(values.shape[0])
    return self.pack(planes.split(values, self.elements_per_word, width))

  def unpack_flat(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """Inverts `pack_flat`: returns int32 or float32 [num_elements]."""
    return join(self.unpack(words))[:num_elements]


class VariablePacking(InPlanes):
  """A packing to a number of words that depends on the codes.

  Compiled code and loops need static shapes. All payloads of one size therefore
  have `capacity` words. The first word encodes how many words are used. The
  remaining words are zero and need not be sent.

  Attributes:
    levels: the largest code that fits; None for packings of floats.
    max_workers: None: words cannot be added.
  """

  levels: int | None = 1
  max_workers: int | None = None

  @abc.abstractmethod
  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """Packs k planes [w] to int32 [capacity]."""

  @abc.abstractmethod
  def unpack(self, words: tf.Tensor, width: int) -> Planes:
    """Unpacks int32 [capacity] to k planes [w].

    A corrupted payload decodes to arbitrary codes; unpacking still terminates
    and reads only the payload.
    """

  @abc.abstractmethod
  def capacity(self, width: int) -> int:
    """Returns the largest number of words of planes [w]."""

  def used(self, first: tf.Tensor) -> tf.Tensor:
    """Returns how many words are used, int32 [...], from first words."""
    return first

  @abc.abstractmethod
  def expected(self, num_elements: int) -> float:
    """Returns the mean number of used words at the expected density."""

  def check(self, words: np.ndarray, width: int) -> None:
    """Raises ValueError for payloads that `pack` cannot produce.

    Errors that show when a payload is decoded and packed again need not be
    detected.

    Args:
      words: NumPy int32 [capacity].
      width: w.
    """

  def num_words(self, num_elements: int) -> int:
    """Returns the int32 words of a payload, used or not."""
    if num_elements > MAX_VARIABLE_ELEMENTS:
      raise ValueError(
        f'{self.name}: expected a bucket of at most {MAX_VARIABLE_ELEMENTS} '
        f'elements, received {num_elements}. Give some of its variables '
        'another code with codec_rules; a ternary code may have packing=base3.'
      )
    return self.capacity(self.width(num_elements))

  def expected_words(self, num_elements: int) -> float:
    """Returns the mean number of int32 words that are sent."""
    return self.expected(num_elements)

  def sent_words(self, words: tf.Tensor) -> tf.Tensor:
    """Counts the sent words of each payload [..., w]: int32 [...]."""
    # Only these few words are cast: int32 is slow on GPUs.
    return self.used(transport.to_int32(words[..., 0]))

  def planes(self, words: tf.Tensor, num_elements: int) -> Planes:
    """Unpacks a payload; the same signature as in other packings."""
    return self.unpack(words, self.width(num_elements))


class DensityPacking(VariablePacking):
  """A packing of {-1, 0, 1} whose length depends on the density of nonzeros."""

  def __init__(self, density: float) -> None:
    """Takes the expected fraction of nonzero codes, which `expected` uses."""
    self._density = density

  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """Packs planes; empty planes give the first word only."""
    return self.pack_codes(planes) if planes[0].shape[0] else tf.constant([1])

  @abc.abstractmethod
  def pack_codes(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """Packs planes that are not empty."""

  def unpack(self, words: tf.Tensor, width: int) -> Planes:
    """Unpacks planes, which may be empty."""
    if width:
      return self.unpack_codes(words, width)
    return [tf.zeros([0], tf.int32)] * self.elements_per_word

  @abc.abstractmethod
  def unpack_codes(self, words: tf.Tensor, width: int) -> Planes:
    """Unpacks planes that are not empty."""


class CompositePacking(Fixed):
  """A packing of FLOAT to several kinds of words.

  The words hold scales or indices, and codes or values. `num_words` takes the
  elements of a bucket, or of a variable if the code has scope VARIABLE.
  """

  domain = (contract.FLOAT, contract.WORDS)

  @abc.abstractmethod
  def planes(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """Unpacks int32 words to float32 [n], n >= 1; safe for any words."""

  @abc.abstractmethod
  def check(
    self, words: np.ndarray, num_elements: int
  ) -> tuple[Packing, np.ndarray, int] | None:
    """Raises ValueError for payloads that no encoder can produce.

    Args:
      words: NumPy int32 [num_words].
      num_elements: >= 1.

    Returns:
      (packing, words, elements) of the codes in the payload, which must be
      checked too; None if the payload has none.
    """


def all_words(words: tf.Tensor) -> tf.Tensor:
  """Returns the `sent_words` of payloads whose words are all sent.

  Args:
    words: int32 [..., w], payloads.

  Returns:
    int32 [...], w for each payload.
  """
  return tf.fill(tf.shape(words)[:-1], words.shape[-1])
