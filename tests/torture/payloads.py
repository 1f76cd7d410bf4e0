"""Random words to decoders: `python -m tests.torture.payloads SEED COUNT`.

Kernels and their portable twins must give the same bits, whatever the words.
"""

import sys

import numpy as np
import tensorflow as tf

from terngrad.codec import coded
from terngrad.codec.methods import registry
from terngrad.codec.methods import validation


def words_of(rng, count):
  """int32 words: random, all alike, or few ones among zeros."""
  kind = rng.integers(3)
  if kind == 0:
    return rng.integers(-(2**31), 2**31, count, np.int64).astype(np.int32)
  if kind == 1:
    return np.full(count, rng.integers(-(2**31), 2**31), np.int64).astype(
      np.int32
    )
  words = np.zeros(count, np.int32)
  places = rng.integers(0, count, max(1, count // 20))
  words[places] = rng.integers(-(2**31), 2**31, len(places), np.int64)
  return words


def try_one(rng):
  """Decodes one payload by kernels and without them."""
  text = registry.KINDS[rng.integers(len(registry.KINDS))]
  codec = registry.parse(text, 8)
  if not isinstance(codec, coded.Code):
    return
  size = int(rng.integers(1, 3000))
  words = words_of(rng, codec.num_words(size))
  shared = rng.choice([0.0, 1e-38, 1e-3, 1.0, 1e30, np.inf, np.nan], 1)
  numbers = len(codec.probe([tf.zeros([size])]))
  shared = tf.constant(np.repeat(shared, numbers), tf.float32)
  found = [
    each.decode_sum([tf.constant(words[np.newaxis])], shared, [(size,)])[0]
    for each in (codec, codec.on_kernels())
  ]
  ours, others = (np.asarray(value).view(np.int32) for value in found)
  # NaN is NaN, whatever its bits.
  same = (ours == others) | (np.isnan(found[0]) & np.isnan(found[1]))
  assert same.all(), (text, size, np.flatnonzero(~same)[:5])
  try:
    validation.validate(codec, words, size)
  except ValueError:
    pass


def main():
  seed, count = map(int, sys.argv[1:])
  rng = np.random.default_rng(seed)
  for _ in range(count):
    try_one(rng)


if __name__ == '__main__':
  main()
