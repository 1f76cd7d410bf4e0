"""The codecs of all variables of a model at work together.

Variables that a policy gives the same codec form a bucket. A worker's payload
is the concatenation of its buckets' payloads and its probe the vector of its
variables' probes, so that an exchange moves two flat tensors whatever the
model is.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec import bucket_keys
from terngrad.codec import pieces as pieces_lib


class Bucket(NamedTuple):
  """The variables that one codec codes together.

  Attributes:
    codec: `contract.Codec`.
    indices: tuple of int, the variables' places in the model.
    shapes: tuple of their shapes.
    num_probes: tuple, how many numbers of the probe are of each.
    num_elements: of all of them.
    num_words: of their payload, sent or not.
    stream: the number that its keys are derived by, the same for all buckets
      that were one before they were cut.
    start: elements of that one before this bucket's.
    part: see `parts`.
  """

  codec: tuple
  indices: tuple
  shapes: tuple
  num_probes: tuple
  num_elements: int
  num_words: int
  stream: int = 0
  start: int = 0
  part: int = 0


class GradientCodec(NamedTuple):
  """Codes all gradients of a model; made by `gradient_codec`.

  Attributes:
    buckets: tuple of `Bucket`; every variable is in one.
  """

  buckets: tuple

  @property
  def lossless(self):
    """True where payloads are the gradients' own bits."""
    return all(bucket.codec.traits.lossless for bucket in self.buckets)

  @property
  def compiled(self):
    """True where the codecs want to be compiled; see `contract.Codec`."""
    return all(bucket.codec.compiled for bucket in self.buckets)

  @property
  def num_variables(self):
    """Variables of the whole model."""
    return sum(len(bucket.indices) for bucket in self.buckets)

  @property
  def num_elements(self):
    """Gradient elements of the whole model."""
    return sum(bucket.num_elements for bucket in self.buckets)

  @property
  def num_probes(self):
    """Numbers that the workers agree on."""
    return sum(sum(bucket.num_probes) for bucket in self.buckets)

  @property
  def thins(self):
    """True where `thin` makes payloads, see `contract.Codec`."""
    codecs = [bucket.codec for bucket in self.buckets]
    return any(codec.thins for codec in codecs) and all(
      codec.thins or codec.quantizer is None for codec in codecs
    )

  @property
  def num_words(self):
    """Words of a worker's payload, sent or not."""
    return sum(bucket.num_words for bucket in self.buckets)

  def bits(self, num_workers):
    """Bits that one worker sends a step, probes included.

    The mean for Gaussian gradients where a codec's length varies.
    """
    return sum(
      bucket.codec.bits(
        bucket.num_elements, num_workers, sum(bucket.num_probes)
      )
      for bucket in self.buckets
    )

  def sent_words(self, payloads):
    """How many words of payloads must be sent; the others are zero.

    Args:
      payloads: int32 [n, num_words].

    Returns:
      int32 [n].
    """
    sizes = [bucket.num_words for bucket in self.buckets]
    parts = tf.split(payloads, sizes, axis=1)
    return tf.add_n(
      [
        bucket.codec.sent_words(part)
        for bucket, part in zip(self.buckets, parts, strict=True)
      ]
    )

  def flatten(self, gradients):
    """All gradients as float32 [num_elements], bucket after bucket."""
    order = [i for bucket in self.buckets for i in bucket.indices]
    return tf.concat([tf.reshape(gradients[i], [-1]) for i in order], axis=0)

  def probe(self, gradients):
    """What this worker's gradients ask the workers to agree on.

    Args:
      gradients: list of float32, in the order and shapes of the variables.

    Returns:
      float32 [num_probes], in the order of the variables; an entry is not
      finite where a gradient is not.
    """
    probes = [
      bucket.codec.probe(_pick(gradients, bucket)) for bucket in self.buckets
    ]
    places = np.argsort(np.concatenate(self.probes_of_buckets()))
    return tf.gather(tf.concat(probes, axis=0), places)

  def probed_variables(self):
    """For each number of the probe the variable that it is of."""
    return np.repeat(np.arange(self.num_variables), self._probe_counts())

  def _probe_counts(self):
    """For each variable how many numbers of the probe are of it."""
    counts = np.zeros(self.num_variables, int)
    for bucket in self.buckets:
      counts[list(bucket.indices)] = bucket.num_probes
    return counts

  def probes_of_buckets(self):
    """For each bucket where its numbers stand in the probe, as int arrays."""
    counts = self._probe_counts()
    ends = np.cumsum(counts)
    return [
      np.concatenate(
        [np.arange(ends[i] - counts[i], ends[i]) for i in b.indices]
      )
      for b in self.buckets
    ]

  def keys(self, seed, step, worker):
    """The keys of the buckets of one worker; see `bucket_keys.of_buckets`."""
    streams = [(bucket.stream, bucket.codec) for bucket in self.buckets]
    return bucket_keys.of_buckets(streams, seed, step, worker)

  def encode(self, gradients, own, shared, keys):
    """This worker's payload.

    Args:
      gradients: list of float32, in the order and shapes of the variables, or
        what `flatten` makes of it, float32 [num_elements].
      own: float32 [num_probes], this worker's probe.
      shared: float32 [num_probes], the agreed probe.
      keys: uint32 [buckets, 3], from `keys`.

    Returns:
      int32 [num_words].
    """
    pieces = self._pieces(gradients)
    numbers = self.probes_of_buckets()
    payloads = [
      bucket.codec.encode_pieces(
        pieces[place],
        [tf.TensorShape(shape).num_elements() for shape in bucket.shapes],
        tf.gather(own, numbers[place]),
        tf.gather(shared, numbers[place]),
        bucket_keys.from_element(keys[place], bucket.start),
      )
      for place, bucket in enumerate(self.buckets)
    ]
    return _join(payloads, axis=0)

  def thin(self, words, own, shared, keys):
    """The payload of the agreed probe, from one made with the own probe.

    Args:
      words: int32 [num_words], from `encode` with `own` as `shared`.
      own: float32 [num_probes], this worker's probe.
      shared: float32 [num_probes], the agreed probe.
      keys: uint32 [buckets, 3], those that the words were made with.

    Returns:
      int32 [num_words]; see `contract.Codec.thin`.
    """
    sizes = [bucket.num_words for bucket in self.buckets]
    parts = _split(words, sizes, axis=0)
    numbers = self.probes_of_buckets()
    payloads = [
      bucket.codec.thin(
        parts[place],
        tf.gather(own, numbers[place]),
        tf.gather(shared, numbers[place]),
        bucket.shapes,
        bucket_keys.from_element(
          bucket_keys.for_thinning(keys[place]), bucket.start
        ),
      )
      for place, bucket in enumerate(self.buckets)
    ]
    return _join(payloads, axis=0)

  def decode_mean(self, parts, shared):
    """The average gradient of the workers.

    Args:
      parts: list of int32 [n, num_words], the payloads as they come from the
        devices; see `contract.Codec.decode_sum`.
      shared: float32 [num_probes], the agreed probe.

    Returns:
      List of float32, in the order and shapes of the variables.
    """
    return self.in_model_order(pieces_lib.decode(self, [parts], shared))

  def in_model_order(self, values):
    """A list in the order of the buckets in that of the model's variables."""
    return [values[place] for place in self._places()]

  def _pieces(self, gradients):
    """For each bucket what its codec's `encode_pieces` takes."""
    if isinstance(gradients, list):
      return [
        [tf.reshape(gradient, [-1]) for gradient in _pick(gradients, bucket)]
        for bucket in self.buckets
      ]
    sizes = [bucket.num_elements for bucket in self.buckets]
    return [[part] for part in _split(gradients, sizes, axis=0)]

  def _places(self):
    """For each variable its place in the concatenation of the buckets."""
    order = [i for bucket in self.buckets for i in bucket.indices]
    return [order.index(i) for i in range(len(order))]


def gradient_codec(specs, codecs):
  """Sorts variables into buckets by their codec.

  Args:
    specs: the `policy.VariableSpec`s, in the order of the gradients.
    codecs: the `contract.Codec` of each, from `policy.policy`.

  Returns:
    A `GradientCodec`.
  """
  buckets = []
  for stream, codec in enumerate(dict.fromkeys(codecs)):
    indices = tuple(i for i, c in enumerate(codecs) if c == codec)
    sizes = [specs[i].num_elements for i in indices]
    size = sum(sizes)
    buckets.append(
      Bucket(
        codec=codec,
        indices=indices,
        shapes=tuple(tuple(specs[i].shape) for i in indices),
        num_probes=tuple(codec.num_probes(size) for size in sizes),
        num_elements=size,
        num_words=codec.num_words(size),
        stream=stream,
      )
    )
  return GradientCodec(tuple(buckets))


def _join(parts, axis):
  """The concatenation; one part is not copied."""
  return parts[0] if len(parts) == 1 else tf.concat(parts, axis)


def _split(tensor, sizes, axis):
  """The parts of a tensor; one part is not copied."""
  return [tensor] if len(sizes) == 1 else tf.split(tensor, sizes, axis)


def _pick(gradients, bucket):
  return [gradients[i] for i in bucket.indices]


def agree(probes):
  """The agreed probe of float32 [workers, num_probes]: the largest.

  It is not finite where a worker's is not: XLA's own maximum passes over NaN.
  """
  finite = tf.reduce_all(tf.math.is_finite(probes), axis=0)
  return tf.where(finite, tf.reduce_max(probes, axis=0), float('nan'))
