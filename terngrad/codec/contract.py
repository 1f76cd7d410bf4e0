"""What a gradient codec is, and how one is made from stages.

A codec turns the gradients of a bucket, a list of variables of one worker,
into a payload, and the payloads of all workers into the sums of what they
stand for. It is a few pure functions and declared properties; it knows nothing
of devices, flags or communication.

A payload is one flat int32 tensor of words and nothing else: TensorFlow's
collectives carry no narrower integers, and a code that must send floats beside
its digits sends their bits as words.

A codec is a chain of stages in the order in which data flows through them:

  FLOAT --clip--> FLOAT --quantizer--> CODES --packing--> WORDS

`chain(clip_by_stddev(2.5), ternarize(), base3())` is TernGrad and
`chain(float32_words())` is the plain gradient. Clips and scalers are each
variable's own; a bucket is quantized and packed as one vector, so that the
compiled code does not grow with the number of variables.

Layout: the elements of a bucket are dealt to words in planes. With `k`
elements in a word and `w` words, plane `p` holds the elements `p * w` to
`(p + 1) * w - 1` and fills place `p` of every word, so that packing is
elementwise work on whole planes. The places past the end hold the code zero.
"""

from collections.abc import Callable
from typing import Literal
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import statistics

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


def chain(*stages):
  """Makes a codec of stages, listed in the order of the data.

  Args:
    *stages: any number of `Clip`, at most one `Quantizer`, then one `Packing`
      that takes what comes before it.

  Returns:
    A `Codec`.

  Raises:
    ValueError: the stages do not fit together; the message names the two.
  """
  _check(stages)
  clips = [stage for stage in stages if isinstance(stage, Clip)]
  quantizer = next((s for s in stages if isinstance(s, Quantizer)), None)
  packing = stages[-1]

  def probe(gradients):
    if not (clips or quantizer):
      # Nothing to agree on, but an element that is not finite must show.
      return tf.stack([statistics.norm(gradient) for gradient in gradients])
    wishes = []
    for gradient in gradients:
      stats = statistics.statistics(gradient)
      for clip in clips:
        limit = clip.limit(stats)
        stats = stats._replace(max_abs=_lesser(stats.max_abs, limit))
      wishes.append(quantizer.scaler(stats) if quantizer else stats.max_abs)
    return tf.stack(wishes)

  def encode_flat(flat, sizes, own, shared, key):
    width = num_words(sum(sizes))
    factors = quantizer.factor(shared) if quantizer else None
    planes = []
    for place in range(packing.elements_per_word):
      plane = _plane(flat, place, width)
      if clips:
        # The probe of a chain that clips is the largest clipped magnitude, so
        # that clipping at it is clipping at the limits.
        limit = _spread(own, sizes, place, width)
        plane = tf.clip_by_value(plane, -limit, limit)
      if quantizer:
        start = place * width
        positions = tf.bitcast(tf.range(start, start + width), tf.uint32)
        scaled = plane * _spread(factors, sizes, place, width)
        plane = quantizer.quantize(scaled, positions, key)
      planes.append(plane)
    return packing.pack(planes)

  def decode_sum(parts, shared, shapes):
    sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
    sums = tf.split(_sum_planes(packing, parts)[: sum(sizes)], sizes)
    if quantizer:
      sums = [
        quantizer.dequantize(total, shared[i]) for i, total in enumerate(sums)
      ]
    return [
      tf.reshape(total, shape)
      for total, shape in zip(sums, shapes, strict=True)
    ]

  def num_words(num_elements):
    return -(-num_elements // packing.elements_per_word)

  traits = quantizer.traits if quantizer else packing.traits
  return Codec(
    name=' > '.join(stage.name for stage in stages),
    probe=probe,
    encode_flat=encode_flat,
    decode_sum=decode_sum,
    num_words=num_words,
    traits=traits._replace(lossless=False) if clips else traits,
  )


def _check(stages):
  """Raises ValueError where `stages` make no codec."""
  domain = FLOAT
  for before, stage in zip((None, *stages), stages, strict=False):
    takes, gives = stage.domain
    if takes != domain:
      raise ValueError(
        f'Stage {stage.name} takes {takes}, received {domain} from '
        f'{before.name if before else "the gradient"}. List the stages in the '
        'order clip, quantizer, packing.'
      )
    if isinstance(stage, Quantizer) and stage.clips and before is not None:
      raise ValueError(
        f'{stage.name} bounds the elements itself; expected no stage before '
        f'it, received {before.name}. Leave one of the two out.'
      )
    if isinstance(before, Quantizer) and before.levels > stage.levels:
      raise ValueError(
        f'{stage.name} holds codes up to {stage.levels}, {before.name} makes '
        f'codes up to {before.levels}. Choose a packing with more levels.'
      )
    domain = gives
  if domain != WORDS:
    last = stages[-1].name if stages else 'nothing'
    raise ValueError(
      f'A codec must end in words, received {domain} at the end ({last}). Add '
      'a packing: base3() or two_bit() for codes, float32_words() for floats.'
    )


def _lesser(largest, limit):
  """The lesser of the two; keeps a `largest` that is not a number."""
  return tf.where(largest > limit, limit, largest)


def _sum_planes(packing, parts):
  """Sums what payloads unpack to, as one vector of `packing`'s places.

  Payloads are unpacked one at a time and added in place in the order of the
  workers, so that memory does not grow with them and floats have one order.

  Args:
    packing: `Packing`.
    parts: list of int32 [n, w], see `Codec.decode_sum`.

  Returns:
    Of the packing's dtype, [elements_per_word * w].
  """

  def add(sums, row, some):
    for part in some:
      planes = packing.unpack(part[row])
      sums = [a + b for a, b in zip(sums, planes, strict=True)]
    return sums

  counts = [part.shape[0] for part in parts]
  sums = add(packing.unpack(parts[0][0]), 0, parts[1:])
  if min(counts) > 1:
    _, sums = tf.while_loop(
      lambda row, _: row < min(counts),
      lambda row, sums: (row + 1, add(sums, row, parts)),
      (tf.constant(1), sums),
      parallel_iterations=1,
    )
  longer = [part for part in parts if part.shape[0] > min(counts)]
  return tf.concat(add(sums, min(counts), longer), axis=0)


def _plane(flat, place, width):
  """Elements `place * width` onwards, float32 [width], zeros past the end."""
  size = flat.shape.num_elements()
  start = min(place * width, size)
  stop = min(start + width, size)
  plane = flat[start:stop]
  missing = width - (stop - start)
  return tf.pad(plane, [[0, missing]]) if missing else plane


def _spread(values, sizes, place, width):
  """Each variable's value for the elements of a plane.

  Args:
    values: float32 [v].
    sizes: list of v int, the elements of each variable.
    place: of the plane.
    width: elements of a plane.

  Returns:
    float32 [] where the plane lies in one variable, as most do in a net whose
    elements are in a few large ones; else float32 [width].
  """
  pieces = []
  start, stop = place * width, min((place + 1) * width, sum(sizes))
  end = 0
  for i, size in enumerate(sizes):
    begin, end = end, end + size
    count = min(stop, end) - max(start, begin)
    if count > 0:
      pieces.append([i, count])
  if not pieces:
    return tf.constant(0.0)
  if len(pieces) == 1:
    return values[pieces[0][0]]
  pieces[-1][1] += width - (stop - start)
  return tf.concat([tf.fill([n], values[i]) for i, n in pieces], axis=0)
