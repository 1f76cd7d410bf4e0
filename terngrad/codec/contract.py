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
      returns int32 [w] codes.
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
  """CODES or FLOAT to WORDS: several elements in a word.

  Attributes:
    name: for messages and labels.
    elements_per_word: k.
    pack: takes a list of k planes [w], returns int32 [w].
    unpack: takes int32 [w], returns the list of k planes [w].
    levels: the largest code that fits; None for packings of floats.
  """

  name: str
  elements_per_word: int
  pack: Callable
  unpack: Callable
  domain: tuple
  levels: int | None = None
  traits: Traits | None = None


class Codec(NamedTuple):
  """A code for the gradients of a bucket of variables.

  Attributes:
    name: the stages, for labels: 'clip_by_stddev(2.5) > ternarize > base3'.
    probe: takes the gradients, a list of v float32 of any static shapes;
      returns float32 [v], what the workers must agree on before they encode,
      by the largest: for TernGrad the scalers. An entry is not finite when an
      element of its gradient is not.
    encode_flat: `encode` for gradients that are concatenated already: takes
      (flat float32 [n], sizes, own, shared, key), sizes a list of v int.
    decode_sum: takes (parts, shared, shapes), the payloads of n workers and
      the v shapes; returns a list of v float32, the sums of the n gradients
      that they stand for, added in the order of the workers. `parts` is a list
      of m int32 [n / m, w]: worker r's payload is row r // m of part r % m, as
      they come from m devices; the first parts may have one row more.
    num_words: takes the number of elements in the bucket, returns w.
    traits: see `Traits`.
  """

  name: str
  probe: Callable
  encode_flat: Callable
  decode_sum: Callable
  num_words: Callable
  traits: Traits

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
    parts = [tf.reshape(gradient, [-1]) for gradient in gradients]
    sizes = [part.shape.num_elements() for part in parts]
    return self.encode_flat(tf.concat(parts, 0), sizes, own, shared, key)

  def bits(self, num_elements, num_workers, num_variables=1):
    """Bits that one worker sends for a bucket, its probe included."""
    del num_workers  # the codes that exist so far cost the same for any number
    return 32 * (self.num_words(num_elements) + num_variables)
