"""What a packing is: codes or floats to words and back."""

import abc
from collections.abc import Sequence
from typing import Protocol
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import planes

# Where a payload's length varies, positions of bits must fit in int32 whatever
# the payload claims.
MAX_VARIABLE_ELEMENTS = 2**28

# k planes, a list of [w] or one tensor [k, w]; or all elements [n].
Planes: TypeAlias = list[tf.Tensor] | tf.Tensor


class Unpacks(Protocol):
  """What payloads are summed by: any packing, or those of many variables."""

  @property
  def name(self) -> str:
    """For messages."""

  def num_words(self, num_elements: int) -> int:
    """int32 numbers in a payload."""

  def planes(self, words: tf.Tensor, num_elements: int) -> Planes:
    """What a payload unpacks to."""


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


class Packing(Fixed):
  """CODES or FLOAT to WORDS of a fixed number: k elements in each word.

  Attributes:
    elements_per_word: k.
    traits: see `contract.Traits`; None for packings of codes.
    word_bits: 32, or 64: two int32 side by side, the low half first.
    digits: (base, k) where a word is k digits of a base, digit = code + 1, the
      first the lowest; None for other words.
    fill: the code that places past the last element unpack to.
  """

  elements_per_word: int
  traits: contract.Traits | None = None
  word_bits: int = 32
  digits: tuple[int, int] | None = None
  fill: int = 0
  domain = (contract.CODES, contract.WORDS)

  @abc.abstractmethod
  def pack(self, planes: list[tf.Tensor]) -> tf.Tensor:
    """int32 [w] words of k planes [w]; [2 w] where words have 64 bits."""

  @abc.abstractmethod
  def unpack(self, words: tf.Tensor) -> Planes:
    """The inverse of `pack`, also of a sum of words: k planes [w]."""

  def width(self, num_elements: int) -> int:
    """Elements of a plane."""
    return -(-num_elements // self.elements_per_word)

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
    codes = join(self.unpack(words))
    # Every worker's digit is its code + 1; unpacking takes one 1 away.
    return codes - (num_workers - 1)

  def planes(self, words: tf.Tensor, num_elements: int) -> Planes:
    """`unpack`, for payloads of any kind."""
    del num_elements
    return self.unpack(words)

  def pack_flat(self, values: tf.Tensor) -> tf.Tensor:
    """int32 words of int32 or float32 [n], in the order of the planes."""
    width = self.width(values.shape[0])
    places = range(self.elements_per_word)
    return self.pack([planes.plane(values, p, width) for p in places])

  def unpack_flat(self, words: tf.Tensor, num_elements: int) -> tf.Tensor:
    """The inverse of `pack_flat`: int32 or float32 [num_elements]."""
    return join(self.unpack(words))[:num_elements]


class VariablePacking(contract.Stage):
  """CODES to WORDS of a number that depends on the codes.

  Compiled code and loops want one shape. So a payload has `capacity` words for
  every gradient of a size, its first word says how many are used, and those
  after them are zero and need not be sent.

  Attributes:
    elements_per_word: k, the number of planes.
    levels: the largest code that fits; None for packings of floats.
    traits: see `Packing`.
    max_workers: see `Packing`: sums of words mean nothing.
    fill: see `Packing`.
  """

  elements_per_word: int
  levels: int | None = 1
  traits: contract.Traits | None = None
  max_workers: int | None = None
  fill: int = 0
  domain = (contract.CODES, contract.WORDS)

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

  def width(self, num_elements: int) -> int:
    """Elements of a plane."""
    return -(-num_elements // self.elements_per_word)

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


def sum_planes(
  packing: Unpacks, parts: Sequence[tf.Tensor], num_elements: int
) -> tf.Tensor:
  """Sums what payloads unpack to, as one vector of `packing`'s places.

  Payloads are unpacked one at a time and added in place in the order of the
  workers, so that memory does not grow with them and floats have one order.

  Args:
    packing: `Packing` or another one.
    parts: list of int32 [n, w], see `coded.Code.decode_sum`.
    num_elements: of the bucket.

  Returns:
    Of the packing's dtype, [num_elements] and the places past the end.

  Raises:
    ValueError: payloads of a bucket of that size have another length.
  """
  check_length(packing, parts, num_elements)

  def add(
    sums: Planes, row: int | tf.Tensor, some: Sequence[tf.Tensor]
  ) -> Planes:
    for part in some:
      planes = packing.planes(part[row], num_elements)
      if isinstance(sums, list):
        sums = [_plus(a, b) for a, b in zip(sums, planes, strict=True)]
      else:
        sums = _plus(sums, planes)
    return sums

  counts = [part.shape[0] for part in parts]
  sums = add(packing.planes(parts[0][0], num_elements), 0, parts[1:])
  if min(counts) > 1:
    _, sums = tf.while_loop(
      lambda row, _: row < min(counts),
      lambda row, sums: (row + 1, add(sums, row, parts)),
      (tf.constant(1), sums),
      parallel_iterations=1,
    )
  longer = [part for part in parts if part.shape[0] > min(counts)]
  return join(add(sums, min(counts), longer))


def check_length(
  packing: Unpacks, parts: Sequence[tf.Tensor], num_elements: int
) -> None:
  """Raises ValueError where payloads have not the words of their bucket.

  Args:
    packing: `Packing` or another one.
    parts: list of int32 [n, w], payloads.
    num_elements: of the bucket.
  """
  if any(len(part.shape) != 2 for part in parts):
    raise ValueError(
      f'{packing.name}: expected a list of int32 [payloads, words], received '
      f'{[list(part.shape) for part in parts]}. Stack the payloads of a '
      'device, and put the stacks of all devices into a list.'
    )
  expected = packing.num_words(num_elements)
  for part in parts:
    if part.shape[1] not in (expected, None):
      raise ValueError(
        f'{packing.name}: expected payloads of {expected} words for '
        f'{num_elements} elements, received {part.shape[1]}. They are torn, or '
        'of another bucket.'
      )


def _plus(sums: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
  """The sum, which TensorFlow must not join with others in another order.

  Its graph optimizer makes one `AddN` of several additions, whose inputs it
  reorders. It sees no additions in what has had its shape checked.
  """
  return tf.ensure_shape(sums + values, sums.shape)


def join(planes: Planes) -> tf.Tensor:
  """The elements of planes, a list of [w] or one tensor [k, w], as [k * w]."""
  if isinstance(planes, list):
    return tf.concat(planes, axis=0)
  return tf.reshape(planes, [-1])


def pack_bytes(numbers: tf.Tensor) -> tf.Tensor:
  """Bytes one after the other, from the lowest of each word up.

  Args:
    numbers: int32 [n] below 256.

  Returns:
    int32 [ceil(n / 4)]; bytes past the last are 0.
  """
  missing = -numbers.shape[0] % 4
  quads = tf.reshape(tf.pad(numbers, [[0, missing]]), [-1, 4])
  return tf.reduce_sum(tf.bitwise.left_shift(quads, [0, 8, 16, 24]), axis=1)


def unpack_bytes(words: tf.Tensor) -> tf.Tensor:
  """The inverse of `pack_bytes`: int32 [4 w] of int32 [w]."""
  quads = tf.bitcast(words[:, tf.newaxis], tf.uint32)
  quads = tf.bitwise.right_shift(quads, tf.constant([0, 8, 16, 24], tf.uint32))
  return tf.reshape(
    tf.bitwise.bitwise_and(tf.bitcast(quads, tf.int32), 255), [-1]
  )
