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

# SIGNS are codes without 0.
FLOAT, CODES, SIGNS, WORDS = 'float', 'codes', 'signs', 'words'
# What an element's code depends on, beside the agreed numbers: on nothing, on
# its variable, on all variables of its bucket.
ELEMENT, VARIABLE, BUCKET = 'element', 'variable', 'bucket'
# What a sum of codes, or of floats, is in units of; see `Codec.unit`.
SCALER, ONE = 'scaler', 'one'


def check_gradients(gradients):
  """Raises ValueError for what is no list of float32 gradients.

  One tensor would be taken for the list of its rows.
  """
  is_list = isinstance(gradients, list | tuple)
  if not (is_list and all(_is_float32(one) for one in gradients)):
    raise ValueError(
      'gradients: expected a list of float32 tensors, one a variable, received '
      f'{_described(gradients)}. Put one gradient into a list.'
    )


def _is_float32(value):
  return getattr(value, 'dtype', None) == tf.float32


def _described(value):
  if isinstance(value, list | tuple):
    return f'a list of {", ".join(map(_described, value[:3])) or "nothing"}'
  if hasattr(value, 'dtype'):
    return f'{tf.as_dtype(value.dtype).name} {list(value.shape)}'
  return type(value).__name__


class Traits(NamedTuple):
  """Properties that an exchange may rely on; the conformance tests hold them.

  Whatever the traits, what is twice as large is coded as twice the gradient, as
  long as the largest magnitude of a variable, or of a group, is from 2**-96 to
  2**120 divided by the workers. Smaller gradients may count as zeros; elements
  below 2**-126, which processors flush, always may. `fp16` and `threshold` look
  at magnitudes themselves.

  Attributes:
    unbiased: the mean of decoded payloads over all keys is the gradient, up to
      the declared clipping and to 2**-24 of the scaler; and zero where the
      scaler is below 2**-100.
    lossless: decoding gives the gradient back to the bit.
    additive: codes are integers on one shared scale, so that a sum of codes
      decodes to the sum of the gradients.
    randomness: 'none', 'private' (each worker draws its own bits) or 'shared'
      (all derive theirs from the same, so that their errors offset each other).
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
    clip_factor: the limit in standard deviations, for kernels; None where it
      is not a number of those.
  """

  name: str
  limit: Callable
  clip_factor: float | None = None
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
    strata: the number of workers whose draws are spread evenly, or 0. Keys then
      have a third number, see `gradients.GradientCodec.keys`.
  """

  name: str
  scaler: Callable
  factor: Callable
  quantize: Callable
  dequantize: Callable
  levels: int
  traits: Traits
  clips: bool = False
  strata: int = 0
  domain: tuple = (FLOAT, CODES)


class Codec(NamedTuple):
  """A code for the gradients of a bucket of variables.

  Attributes:
    name: the stages, for labels: 'clip_by_stddev(2.5) > ternarize > base3'.
    probe: takes the gradients, a list of v float32 of any static shapes;
      returns float32 [p], what the workers must agree on before they encode,
      by the largest: for TernGrad the scalers, `num_probes` of a variable. An
      entry is not finite when an element that it is of is not.
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
      words of a payload; `sent_words` tells how many of them must be sent. For
      codes of scope VARIABLE those of a variable; see `words_of`.
    traits: see `Traits`.
    stages: what it is a chain of.
    decode_sums: where sums of what words hold say all, else None: takes (sums,
      shared, shapes, scale=1.0), the sums of the workers' codes, int8 or int32,
      or of their floats, float32, [elements or more], and returns what
      `decode_sum` of their payloads would.
    digits: (radix, places) where a kernel decodes words whose digits, summed
      over the workers and times the agreed number of their variable, are the
      gradient; None where none does.
    unit: SCALER where a kernel makes gradients of sums of codes times the
      agreed number of their variable, ONE where of sums of floats as they are;
      None where none does.
    compiled: True where the functions are TensorFlow operations that want to
      be compiled by XLA, False where they must not be or gain nothing; see
      `accelerated`.
    group_size: elements of a variable that share a scaler; 0 for all of it.
    scope: ELEMENT, VARIABLE or BUCKET: what an element's code depends on. Of
      scope VARIABLE a payload is those of its variables, one after the other.
    requantizes: True where workers encode at once, by their own probe, and
      `requantize` when the shared one is known, instead of keeping gradients
      until then.
    agrees: see `method.Method`.
    native: returns it with kernels of its own, for CPUs; None where it brings
      none, see `accelerated`.
  """

  name: str
  probe: Callable
  encode_pieces: Callable
  decode_sum: Callable
  num_words: Callable
  traits: Traits
  stages: tuple
  decode_sums: Callable | None = None
  digits: tuple | None = None
  unit: str | None = None
  compiled: bool = True
  group_size: int = 0
  scope: str = ELEMENT
  requantizes: bool = False
  agrees: bool = True
  native: Callable | None = None

  @property
  def packing(self):
    """The last stage, `Packing` or `VariablePacking`."""
    return self.stages[-1]

  @property
  def quantizer(self):
    """The `Quantizer` among the stages, or None."""
    kind = Quantizer
    return next((s for s in self.stages if isinstance(s, kind)), None)

  def words_of(self, sizes):
    """Words of a payload of variables of so many elements, list of v int."""
    if self.scope == VARIABLE:
      return sum(map(self.num_words, sizes))
    return self.num_words(sum(sizes))

  def num_probes(self, num_elements):
    """How many of the probe's numbers are of a variable; at least 1."""
    if not self.group_size:
      return 1
    return max(1, -(-num_elements // self.group_size))

  def encode(self, gradients, own, shared, key):
    """This worker's payload for a bucket.

    Args:
      gradients: list of v float32 of any static shapes.
      own: float32 [p], this worker's probe.
      shared: float32 [p], the agreed probe.
      key: uint32 [2], from `random_bits.fold_in`; or, for strata, [3], see
        `gradients.GradientCodec.keys`.

    Returns:
      int32 [w].

    Raises:
      ValueError: these are no gradients, no probes of them, or no key.
    """
    check_gradients(gradients)
    pieces = [tf.reshape(gradient, [-1]) for gradient in gradients]
    sizes = [piece.shape.num_elements() for piece in pieces]
    probes = sum(map(self.num_probes, sizes))
    if shared is not None and tuple(shared.shape) != (probes,):
      raise ValueError(
        f'{self.name}: expected a shared probe of {probes} numbers, for '
        f'{len(sizes)} gradients, received {_described(shared)}. Call probe '
        'with the same gradients.'
      )
    if self.quantizer and self.quantizer.strata and key.shape[0] != 3:
      raise ValueError(
        f"{self.name}: expected a key of 3 numbers, the last the worker's "
        f'stratum, received {key.shape[0]}. Take it from GradientCodec.keys.'
      )
    return self.encode_pieces(pieces, sizes, own, shared, key)

  def requantize(self, words, own, shared, shapes, key):
    """A payload of the shared scaler from one of the worker's own.

    A code of the own scaler s is kept with probability s / S, S the shared one.
    What was not 0 with probability |g| / s then is not with |g| / S: the law of
    encoding by S. An element and the decoded one have the same sign, so that
    this is encoding again what was decoded.

    Args:
      words: int32 [w], encoded with `own` as the shared probe.
      own: float32 [p], this worker's probe.
      shared: float32 [p], the agreed probe, nowhere below `own`.
      shapes: of the v variables.
      key: as for `encode`, another one.

    Returns:
      int32 [w].
    """
    decoded = self.decode_sum([words[tf.newaxis]], own, shapes)
    return self.encode(decoded, own, shared, key)

  def bits(self, num_elements, num_workers, num_probes=1):
    """Bits that one worker sends for a bucket, its probe included.

    Where the length varies this is the mean for the density of codes that the
    packing was made for: of Gaussian gradients.
    """
    del num_workers  # the codes that exist so far cost the same for any number
    words = self.packing.expected_words(num_elements)
    return 32 * (words + num_probes)

  def sent_words(self, words):
    """How many words of payloads must be sent; the rest are zero.

    Args:
      words: int32 [..., w], payloads.

    Returns:
      int32 [...].
    """
    return self.packing.sent_words(words)
