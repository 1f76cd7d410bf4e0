"""What a gradient codec is, and how one is made from stages.

A codec turns the gradients of a bucket, a list of variables of one worker,
into a payload, and the payloads of all workers into the sums of what they
stand for. It is a few pure functions and declared properties; it knows nothing
of devices, flags or communication.

A payload is one flat int32 tensor of words and nothing else: TensorFlow's
collectives carry no narrower integers, and a code that must send floats beside
its digits sends their bits as words.

`chain` makes codecs of the stages that are described here.
"""

from collections.abc import Callable
from typing import Literal
from typing import NamedTuple

import tensorflow as tf

FLOAT, CODES, WORDS = 'float', 'codes', 'words'

# Where a payload's length varies, positions of bits must fit in int32 whatever
# the payload claims.
MAX_VARIABLE_ELEMENTS = 2**28


class Traits(NamedTuple):
  """Properties that an exchange may rely on; the conformance tests hold them.

  Attributes:
    unbiased: the mean of decoded payloads over all keys is the gradient, up to
      the declared clipping and to 2**-24 of the scaler.
    lossless: decoding gives the gradient back to the bit.
    additive: codes are integers on one shared scale, so that a sum of codes
      decodes to the sum of the gradients.
    randomness: 'none', 'private' (each worker draws its own bits) or 'shared'.
  """

  unbiased: bool
  lossless: bool
  additive: bool
  randomness: Literal['none', 'private', 'shared']


class Clip(NamedTuple):
  """FLOAT to FLOAT: limits the elements.

  Attributes:
    name: for messages and labels.
    limit: takes `statistics.Statistics`, returns the float32 [] that no
      element's magnitude may exceed; infinity clips nothing.
  """

  name: str
  limit: Callable
  domain: tuple = (FLOAT, FLOAT)


class Quantizer(NamedTuple):
  """FLOAT to CODES: rounds elements to small integers times a scaler.

  Attributes:
    name: for messages and labels.
    scaler: takes the statistics of the clipped gradient, returns float32 [],
      this worker's wish for the scaler; the workers agree on the largest.
    factor: takes scalers float32 [v], returns float32 [v]: values times this
      are in the units that `quantize` takes.
    quantize: takes (scaled values float32 [w], positions uint32 [w], key),
      returns int32 [w] codes. Positions count from the start of a plane, which
      is added to the key's first word.
    dequantize: takes (int32 codes or sums of them, scaler), returns float32.
    levels: the codes are -levels to +levels.
    clips: True where the scaler itself bounds the elements, so that a clip
      stage before it would be a second, different bound.
  """

  name: str
  scaler: Callable
  factor: Callable
  quantize: Callable
  dequantize: Callable
  levels: int
  traits: Traits
  clips: bool = False
  domain: tuple = (FLOAT, CODES)


class Packing(NamedTuple):
  """CODES or FLOAT to WORDS of a fixed number: k elements in each word.

  Attributes:
    name: for messages and labels.
    elements_per_word: k.
    pack: takes a list of k planes [w], returns their w words as int32, which
      are twice as many numbers where a word has 64 bits.
    unpack: the inverse of `pack`, also of a sum of words.
    levels: the largest code that fits; None for packings of floats.
    word_bits: 32, or 64: two int32 side by side, the low half first.
    digits: (base, k) where a word is k digits of a base, digit = code + 1, the
      first the lowest; None for other words.
    max_workers: of how many workers words may be added as integers that wrap
      around, so that `unpack` gives the sum of codes, -1 for each worker but
      the first; None where sums of words mean nothing.
  """

  name: str
  elements_per_word: int
  pack: Callable
  unpack: Callable
  domain: tuple
  levels: int | None = None
  traits: Traits | None = None
  word_bits: int = 32
  digits: tuple | None = None
  max_workers: int | None = None

  def width(self, num_elements):
    """Elements of a plane."""
    return -(-num_elements // self.elements_per_word)

  def num_words(self, num_elements):
    """int32 numbers in a payload."""
    return self.width(num_elements) * self.word_bits // 32

  def expected_words(self, num_elements):
    """int32 numbers that are sent: all."""
    return self.num_words(num_elements)

  def sent_words(self, words):
    """int32 [...]: for each payload of int32 [..., w] how many are sent."""
    return tf.fill(tf.shape(words)[:-1], words.shape[-1])

  def lanes(self, words):
    """int32 [..., w] as numbers of `word_bits`; see `Codec.lanes`."""
    if self.word_bits == 32:
      return words
    pairs = tf.concat([tf.shape(words)[:-1], [words.shape[-1] // 2, 2]], axis=0)
    return tf.bitcast(tf.reshape(words, pairs), tf.int64)

  def planes(self, words, num_elements):
    """`unpack`, for payloads of any kind."""
    del num_elements
    return self.unpack(words)


class VariablePacking(NamedTuple):
  """CODES to WORDS of a number that depends on the codes.

  Compiled code and loops want one shape. So a payload has `capacity` words for
  every gradient of a size, its first word tells how many are used, and those
  after them are zero and need not be sent.

  Attributes:
    name: for messages and labels.
    elements_per_word: k, the number of planes.
    pack: takes a list of k planes [w], returns int32 [capacity].
    unpack: takes (int32 [capacity], w), returns the list of k planes [w]. Words
      that `pack` did not make give some codes, read nothing else and end.
    capacity: takes w, returns the largest number of words.
    used: takes the first word of payloads, int32 [...]; returns int32 [...],
      how many words are used.
    expected: takes n, returns the mean number of used words, float, for codes
      of the density that the packing was made for.
    check: takes (NumPy int32 [capacity], w), raises ValueError for what `pack`
      cannot have made, as far as decoding and packing again does not tell.
    levels: the largest code that fits.
  """

  name: str
  elements_per_word: int
  pack: Callable
  unpack: Callable
  capacity: Callable
  used: Callable
  expected: Callable
  check: Callable
  levels: int = 1
  domain: tuple = (CODES, WORDS)
  max_workers: int | None = None

  def width(self, num_elements):
    """Elements of a plane."""
    return -(-num_elements // self.elements_per_word)

  def num_words(self, num_elements):
    """int32 numbers in a payload, used or not."""
    if num_elements > MAX_VARIABLE_ELEMENTS:
      raise ValueError(
        f'{self.name}: expected a bucket of at most {MAX_VARIABLE_ELEMENTS} '
        f'elements, received {num_elements}. Use packing=base3.'
      )
    return self.capacity(self.width(num_elements))

  def expected_words(self, num_elements):
    """int32 numbers that are sent, on average."""
    return self.expected(num_elements)

  def sent_words(self, words):
    """int32 [...]: for each payload of int32 [..., w] how many are sent."""
    return self.used(words[..., 0])

  def planes(self, words, num_elements):
    """`unpack`, for payloads of any kind."""
    return self.unpack(words, self.width(num_elements))


class Codec(NamedTuple):
  """A code for the gradients of a bucket of variables.

  Attributes:
    name: the stages, for labels: 'clip_by_stddev(2.5) > ternarize > base3'.
    probe: takes the gradients, a list of v float32 of any static shapes;
      returns float32 [v], what the workers must agree on before they encode,
      by the largest: for TernGrad the scalers. An entry is not finite when an
      element of its gradient is not.
    encode_pieces: `encode` for flat gradients: takes (pieces, sizes, own,
      shared, key), where sizes is a list of v int and pieces a list of float32,
      the v gradients, or of one tensor, their concatenation.
    decode_sum: takes (parts, shared, shapes, scale=1.0), the payloads of n
      workers and the v shapes; returns a list of v float32, the sums of the n
      gradients that they stand for, added in the order of the workers, times
      scale. `parts` is a list of m int32 [n / m, w]: worker r's payload is row
      r // m of part r % m, as they come from m devices; the first parts may
      have one row more.
    num_words: takes the number of elements in the bucket, returns w, the
      words of a payload; `sent_words` tells how many of them must be sent.
    traits: see `Traits`.
    stages: what it is a chain of.
    decode_total: where payloads add, else None: takes (total, n, shared,
      shapes, scale=1.0), the sum of the `lanes` of n workers' payloads, as an
      all-reduce makes it, and returns what `decode_sum` of the payloads would.
    decode_codes: where codes add, else None: takes (sums, shared, shapes,
      scale=1.0), the sums of the workers' codes, int32 [elements or more], and
      returns what `decode_sum` of their payloads would.
    compiled: True where the functions are TensorFlow operations that want to
      be compiled by XLA, False where they must not be or gain nothing; see
      `accelerated`.
  """

  name: str
  probe: Callable
  encode_pieces: Callable
  decode_sum: Callable
  num_words: Callable
  traits: Traits
  stages: tuple
  decode_total: Callable | None = None
  decode_codes: Callable | None = None
  compiled: bool = True

  @property
  def packing(self):
    """The last stage, `Packing` or `VariablePacking`."""
    return self.stages[-1]

  def encode(self, gradients, own, shared, key):
    """This worker's payload for a bucket.

    Args:
      gradients: list of v float32 of any static shapes.
      own: float32 [v], this worker's probe.
      shared: float32 [v], the agreed probe.
      key: uint32 [2], from `random_bits.fold_in`.

    Returns:
      int32 [w].
    """
    pieces = [tf.reshape(gradient, [-1]) for gradient in gradients]
    sizes = [piece.shape.num_elements() for piece in pieces]
    return self.encode_pieces(pieces, sizes, own, shared, key)

  def bits(self, num_elements, num_workers, num_variables=1):
    """Bits that one worker sends for a bucket, its probe included.

    Where the length varies this is the mean for the density of codes that the
    packing was made for: of Gaussian gradients.
    """
    del num_workers  # the codes that exist so far cost the same for any number
    words = self.packing.expected_words(num_elements)
    return 32 * (words + num_variables)

  def sent_words(self, words):
    """How many words of payloads must be sent; the rest are zero.

    Args:
      words: int32 [..., w], payloads.

    Returns:
      int32 [...].
    """
    return self.packing.sent_words(words)

  def lanes(self, words):
    """Payloads as the numbers that workers may add.

    Args:
      words: int32 [..., w], payloads.

    Returns:
      int32 [..., w], or int64 [..., w / 2] where the packing's words have 64
      bits: sums wrap around and need no wider type.

    Raises:
      ValueError: payloads of this codec do not add.
    """
    if self.decode_total is None:
      raise ValueError(
        f'lanes: expected a codec whose payloads add, received {self.name}. '
        'Use packing=radix, or gather the payloads and call decode_sum.'
      )
    return self.packing.lanes(words)
