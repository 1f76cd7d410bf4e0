"""Payloads of every kind of code, by kernels and without them."""

import zlib

import numpy as np
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.codec.methods import validation
from tests.fuzzing.target import Difference
from tests.fuzzing.target import Target

# Elements and workers, by the first byte.
_CASES = ((1, 1), (20, 3), (77, 1), (513, 2), (1500, 1))
_WORDS = tuple(
  np.array([word], np.uint32).tobytes()
  for word in (
    *(0, 1, 2**31 - 1, 2**31, 2**32 - 1, 3**20 - 1, 3**20, 0x7F800000),
    *(0xFF800000, 0x7FC00000, 0x00000001, 0x00800000, 0x7F7FFFFF, 0x3F800001),
  )
)


class _Decoders:
  """A code's decoders of one number of elements and of workers."""

  def __init__(self, codec, size, workers):
    self.codec, self.size, self.workers = codec, size, workers
    self.num_words = codec.num_words(size)
    self.num_probes = int(codec.probe([tf.zeros([size])]).shape[0])
    kernels = codec.on_kernels()
    parts = tf.TensorSpec([workers, self.num_words], tf.int32)
    probe = tf.TensorSpec([self.num_probes], tf.float32)

    def plain(words, shared_probe):
      return codec.decode_sum([words], shared_probe, [(size,)])[0]

    def fast(words, shared_probe):
      return kernels.decode_sum([words], shared_probe, [(size,)])[0]

    # As a step has them without kernels: XLA joins products and sums.
    self.plain = tf.function(
      plain, input_signature=[parts, probe], jit_compile=codec.compiled
    )
    self.fast = tf.function(fast, input_signature=[parts, probe])

  def seeds(self, case):
    """Payloads of gradients of several kinds."""
    rng = np.random.default_rng([case, self.size])
    normal = rng.standard_normal([self.workers, self.size])
    wide = normal * 10.0 ** rng.integers(-30, 30, normal.shape)
    for values in (normal, wide, np.zeros_like(normal)):
      gradients = [tf.constant(row, tf.float32) for row in values]
      probes = [self.codec.probe([gradient]) for gradient in gradients]
      shared_probe = tf.reduce_max(tf.stack(probes), axis=0)
      strata = self.codec.quantizer and self.codec.quantizer.strata
      words = [
        self.codec.encode(
          [gradient],
          local_probe,
          shared_probe,
          tf.constant([7, worker, worker][: 3 if strata else 2], tf.uint32),
        ).numpy()
        for worker, (gradient, local_probe) in enumerate(
          zip(gradients, probes, strict=True)
        )
      ]
      head = bytes([case]) + shared_probe.numpy().tobytes()
      yield head + np.concatenate(words).tobytes()

  def check(self, content):
    """Decodes in both ways, and validates."""
    content = content[: len(content) // 4 * 4]
    numbers = np.frombuffer(content, np.int32)
    shared_probe = np.zeros(self.num_probes, np.int32)
    shared_probe[: len(numbers)] = numbers[: self.num_probes]
    numbers = numbers[self.num_probes :]
    words = np.zeros(self.workers * self.num_words, np.int32)
    words[: len(numbers)] = numbers[: words.size]
    words = tf.constant(words.reshape(self.workers, self.num_words))
    shared_probe = tf.constant(shared_probe.view(np.float32))
    plain = self.plain(words, shared_probe).numpy()
    fast = self.fast(words, shared_probe).numpy()
    # NaN is NaN, whatever its bits.
    same = (plain.view(np.int32) == fast.view(np.int32)) | (
      np.isnan(plain) & np.isnan(fast)
    )
    if not same.all():
      at = np.flatnonzero(~same)[0]
      raise Difference(
        f'{self.codec.name}: {self.size} elements of {self.workers} workers: '
        f'element {at} is {plain[at]!r} and with kernels {fast[at]!r}'
      )
    # One of eight, since that takes ten times as long as decoding.
    if zlib.crc32(content) % 8 == 0:
      validation.validate(self.codec, numbers[: self.num_words], self.size)


def payload(text):
  """Payloads of a kind of code, with the numbers that workers agree on."""
  codec = registry.parse(text, 8)
  decoders = [_Decoders(codec, *case) for case in _CASES]

  def parse(content, folder):
    del folder
    number = content[0] % len(_CASES) if content else 0
    decoders[number].check(content[1:])

  return Target(
    parse,
    [
      seed
      for case, decoder in enumerate(decoders)
      for seed in decoder.seeds(case)
    ],
    # What `validation` refuses; decoders refuse nothing.
    (ValueError,),
    ['terngrad.codec.methods.validation'],
    _WORDS,
    seconds=20,
  )
