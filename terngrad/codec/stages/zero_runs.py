"""A packing of five trits per byte, with one byte for a run of zero bytes.

Lim, Andersen and Kaminsky, 3LC: Lightweight and Effective Traffic Compression
for Distributed Machine Learning, MLSys 2019, https://arxiv.org/abs/1802.07389,
sections 3.2 and 3.3 ("quartic encoding" and "zero-run encoding").

Payload of n codes, s = ceil(n / 5) symbols:

  word 0   how many words are used
  then     bytes, from the lowest of each word up; unused bytes are 0

Symbol j is the number whose digit for 3**p is the code of element p * s + j,
plus 1. A byte below 243 is a symbol. A byte 243 + k encodes k + 2 consecutive
symbols of five zeros, which are 121.
"""

import tensorflow as tf

from terngrad.codec.stages import wire

_TRITS, _ZEROS, _RUNS, _LONGEST = 5, 121, 243, 14


def zero_runs(density: float = 0.3175) -> wire.VariablePacking:
  """Returns a packing of {-1, 0, 1} to at most 1.6 bits per element.

  If all codes are 0 it takes 0.11 bits.

  Args:
    density: expected fraction of nonzero codes, used only for the estimate of
      `bits`. The default is for Gaussian gradients clipped at 2.5 sigma.
  """
  return _ZeroRuns(density)


class _ZeroRuns(wire.DensityPacking):
  name = 'zero_runs'
  elements_per_word = _TRITS

  def capacity(self, width: int) -> int:
    return 1 - (-width // 4)

  def expected(self, num_elements: int) -> float:
    symbols = -(-num_elements // _TRITS)
    zero = (1 - self._density) ** _TRITS
    # Nonzero symbols, and one byte per 14 symbols of a run; the length of a run
    # has a geometric distribution.
    runs = (1 - zero) * zero / (1 - zero**_LONGEST)
    return 1 + symbols * (1 - zero + runs) / 4 + 3 / 8 * (num_elements > 0)

  def pack_codes(self, planes: list[tf.Tensor]) -> tf.Tensor:
    size = planes[0].shape[0]
    symbols = sum((plane + 1) * 3**digit for digit, plane in enumerate(planes))
    zero = tf.cast(symbols == _ZEROS, tf.int32)
    # The index of each zero symbol in its run, from 1: the zero symbols so far
    # minus those before the last nonzero symbol.
    zeros = tf.cumsum(zero)
    others = tf.cumsum(1 - zero)
    zeros_before = tf.scatter_nd(
      tf.where(zero == 1, size + 1, others)[:, tf.newaxis], zeros, [size + 2]
    )
    index = (zeros - tf.gather(zeros_before, others) - 1) % _LONGEST
    last = (index == _LONGEST - 1) | (tf.concat([zero[1:], [0]], axis=0) == 0)
    runs = tf.where(index == 0, _ZEROS, _RUNS - 1 + index)
    found = tf.where(zero == 1, runs, symbols)
    sent = (zero == 0) | last
    rank = tf.cumsum(tf.cast(sent, tf.int32)) - 1
    capacity = -(-size // 4)
    target = tf.where(sent, rank, 4 * capacity)[:, tf.newaxis]
    packed = tf.scatter_nd(target, tf.where(sent, found, 0), [4 * capacity + 1])
    used = 1 + (rank[-1] + 4) // 4
    return tf.concat([[used], wire.pack_bytes(packed[:-1])], axis=0)

  def unpack_codes(self, words: tf.Tensor, width: int) -> wire.Planes:
    found = wire.unpack_bytes(words[1:])
    length = tf.where(found < _RUNS, 1, found - (_RUNS - 2))
    start = tf.minimum(tf.cumsum(length, exclusive=True), width)[:, tf.newaxis]
    # The byte that encodes each symbol: the number of bytes begun, minus one.
    begun = tf.scatter_nd(start, tf.ones_like(length), [width + 1])
    byte = tf.gather(found, tf.cumsum(begun[:-1]) - 1)
    symbols = tf.where(byte < _RUNS, byte, _ZEROS)
    return [symbols // 3**digit % 3 - 1 for digit in range(_TRITS)]
