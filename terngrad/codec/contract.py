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
    scale: takes (values float32 [n], scaler), returns float32 [n], the values
      in the units that `quantize` takes.
    quantize: takes (scaled values float32 [w], positions uint32 [w], key),
      returns int32 [w] codes.
    dequantize: takes (int32 codes or sums of them, scaler), returns float32.
    levels: the codes are -levels to +levels.
    clips: True where the scaler itself bounds the elements, so that a clip
      stage before it would be a second, different bound.
  """

  name: str
  scaler: Callable
  scale: Callable
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
    encode: takes (gradients, own, shared, key) with `own` this worker's probe,
      `shared` the agreed one and `key` uint32 [2] from `random_bits.fold_in`;
      returns the payload, int32 [w].
    decode_sum: takes (words int32 [n, w], shared, shapes), the payloads of n
      workers and the v shapes; returns a list of v float32, the sums of the n
      gradients that they stand for, added in the order of the workers.
    num_words: takes the number of elements in the bucket, returns w.
    traits: see `Traits`.
  """

  name: str
  probe: Callable
  encode: Callable
  decode_sum: Callable
  num_words: Callable
  traits: Traits

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
    wishes = []
    for gradient in gradients:
      stats = statistics.statistics(gradient)
      for clip in clips:
        limit = clip.limit(stats)
        stats = stats._replace(max_abs=_lesser(stats.max_abs, limit))
      wishes.append(quantizer.scaler(stats) if quantizer else stats.max_abs)
    return tf.stack(wishes)

  def prepare(gradient, own, shared):
    values = tf.reshape(gradient, [-1])
    if clips:
      # The probe of a chain that clips is the largest clipped magnitude, so
      # that clipping at it is clipping at the limits.
      values = tf.clip_by_value(values, -own, own)
    return quantizer.scale(values, shared) if quantizer else values

  def encode(gradients, own, shared, key):
    flat = tf.concat(
      [prepare(g, own[i], shared[i]) for i, g in enumerate(gradients)], axis=0
    )
    width = num_words(flat.shape.num_elements())
    planes = []
    for place in range(packing.elements_per_word):
      plane = _plane(flat, place, width)
      if quantizer:
        start = place * width
        positions = tf.bitcast(tf.range(start, start + width), tf.uint32)
        plane = quantizer.quantize(plane, positions, key)
      planes.append(plane)
    return packing.pack(planes)

  def decode_sum(words, shared, shapes):
    sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
    parts = tf.split(_sum_planes(packing, words)[: sum(sizes)], sizes)
    if quantizer:
      parts = [
        quantizer.dequantize(part, shared[i]) for i, part in enumerate(parts)
      ]
    return [
      tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)
    ]

  def num_words(num_elements):
    return -(-num_elements // packing.elements_per_word)

  return Codec(
    name=' > '.join(stage.name for stage in stages),
    probe=probe,
    encode=encode,
    decode_sum=decode_sum,
    num_words=num_words,
    traits=quantizer.traits if quantizer else packing.traits,
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


def _sum_planes(packing, words):
  """Sums what payloads unpack to; words [n, w] to [elements_per_word * w].

  One payload is unpacked at a time and added in place, so that the memory does
  not grow with the workers and floats are added in their order.
  """
  sums = packing.unpack(words[0])
  _, sums = tf.while_loop(
    lambda worker, _: worker < words.shape[0],
    lambda worker, sums: (
      worker + 1,
      [
        total + plane
        for total, plane in zip(
          sums, packing.unpack(words[worker]), strict=True
        )
      ],
    ),
    (tf.constant(1), sums),
    parallel_iterations=1,
  )
  return tf.concat(sums, axis=0)


def _plane(flat, place, width):
  """Elements `place * width` onwards, float32 [width], zeros past the end."""
  size = flat.shape.num_elements()
  start = min(place * width, size)
  stop = min(start + width, size)
  plane = flat[start:stop]
  missing = width - (stop - start)
  return tf.pad(plane, [[0, missing]]) if missing else plane
