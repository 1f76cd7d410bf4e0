"""Three levels after a random rotation: the least error at 1.6 bits an element.

A rotation makes the elements of any gradient nearly Gaussian. Their best three
levels are then known, and so is what they lose: 0.19 of the square, where codes
of TernGrad lose 1.0 at the same bits. A scale for each rotated block makes the
estimate as long along the gradient as the gradient itself, which turns the loss
to 0.234 and takes the bias away, in the mean over all rotations; the mean over
those that are drawn here, signs and a Hadamard matrix, comes near that.

A payload is: the rotation's key, two words; the scales of the blocks, one word
each; the codes, 20 a word, as `packing.base3` packs them.
"""

import math

import numpy as np
import tensorflow as tf

from terngrad.codec.stages import chain
from terngrad.codec.stages import contract
from terngrad.codec.stages import packing
from terngrad.codec.stages import planes
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire

# Elements that are rotated together: a power of 16, as `_hadamard` takes them.
BLOCK = 4096
_RADIX = 16

# Of a standard normal z, where the levels -b, 0 and b are best the border
# between them is b / 2 and b the mean beyond it: Max, Quantizing for Minimum
# Distortion, IRE Transactions on Information Theory 6 (1), 1960, table 1.
_BORDER = 0.6120
_KEY_WORDS = 2

CODES = packing.base3()

_TRAITS = contract.Traits(
  unbiased=False, lossless=False, additive=False, randomness='private'
)


def eden3():
  """Rotation, three levels and a scale for each block of 4096 elements.

  Variables are first divided by their agreed root mean square, to a power of
  two, so that those of a block, which mix, are of one size. Nothing is agreed
  on but that: workers rotate and scale by themselves, so that their errors are
  independent and decoding rotates every payload back.

  Not for blocks in which a few elements hold nearly all, such as buckets of a
  few elements: rotations by signs are few then, and far from Gaussian. With two
  such elements the square of the bias is up to 0.24 of the gradient's square,
  with 10 normal ones about 0.01 and with 100 below 0.001. Where that matters,
  keep such variables in float32.

  Returns:
    A `contract.Codec` of 1.61 bits an element.

  References:
    Vargaftik et al., EDEN: Communication-Efficient and Robust Distributed Mean
    Estimation for Federated Learning, ICML 2022,
    https://arxiv.org/abs/2108.08842, for the estimate and its scale.
  """
  return contract.Codec(
    name='rotate > lloyd_max_3 > base3',
    probe=_probe,
    encode_pieces=_encode,
    decode_sum=_decode_sum,
    num_words=WORDS.num_words,
    traits=_TRAITS,
    stages=(WORDS,),
    scope=contract.BUCKET,
  )


def _num_words(num_elements):
  if num_elements == 0:
    return 0
  blocks, block = _blocks(num_elements)
  return _KEY_WORDS + blocks + CODES.num_words(blocks * block)


def _probe(gradients):
  """The root mean squares."""
  contract.check_gradients(gradients)
  return tf.stack(
    [
      # Not divided: compiled code would multiply, and round otherwise.
      statistics.norm(gradient) * max(1, gradient.shape.num_elements()) ** -0.5
      for gradient in gradients
    ]
  )


def _encode(pieces, sizes, own, shared, key):
  del own
  flat = pieces[0] if len(pieces) == 1 else tf.concat(pieces, axis=0)
  if not sum(sizes):
    return tf.zeros([0], tf.int32)
  units = _per_element(1.0 / _power_of_two(shared), sizes)
  rotated = _rotate(flat * units, key[:_KEY_WORDS])
  square = tf.reduce_sum(tf.square(tf.cast(rotated, tf.float64)), axis=1)
  border = _BORDER * tf.sqrt(square / rotated.shape[1])
  magnitude = tf.abs(rotated)
  # Zeros have the border 0, and no code.
  fires = (magnitude >= tf.cast(border, tf.float32)[:, tf.newaxis]) & (
    magnitude > 0.0
  )
  kept = tf.reduce_sum(
    tf.where(fires, tf.cast(magnitude, tf.float64), 0.0), axis=1
  )
  scales = tf.cast(tf.math.divide_no_nan(square, kept), tf.float32)
  codes = tf.where(fires, tf.where(rotated < 0.0, -1, 1), 0)
  codes = tf.reshape(codes, [-1])
  width = CODES.width(codes.shape[0])
  codes = [planes.plane(codes, i, width) for i in range(20)]
  return tf.concat(
    [
      tf.bitcast(key[:_KEY_WORDS], tf.int32),
      tf.bitcast(scales, tf.int32),
      CODES.pack(codes),
    ],
    axis=0,
  )


def _decode_sum(parts, shared, shapes, scale=1.0):
  sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
  if not sum(sizes):
    return [tf.zeros(shape) for shape in shapes]

  total = wire.sum_planes(WORDS, parts, sum(sizes))
  total *= _per_element(_power_of_two(shared), sizes)
  return chain.gradients_of(None, total, shared, shapes, scale)


def _decode(words, num_elements):
  """The gradient of one payload in units of the probe, float32 [n]."""
  blocks, block = _blocks(num_elements)
  key, scales, codes = tf.split(
    words, [_KEY_WORDS, blocks, words.shape[0] - _KEY_WORDS - blocks]
  )
  codes = wire.join(CODES.unpack(codes))[: blocks * block]
  levels = tf.cast(tf.reshape(codes, [blocks, block]), tf.float32)
  levels *= tf.bitcast(scales, tf.float32)[:, tf.newaxis] / block
  flat = tf.reshape(_hadamard(levels), [-1])
  return (flat * _signs(tf.bitcast(key, tf.uint32), flat.shape[0]))[
    :num_elements
  ]


def _check(words, num_elements):
  """Refuses scales that no gradient has whose size is at most the agreed."""
  if num_elements == 0:
    return CODES, words, 0
  blocks, block = _blocks(num_elements)
  scales = words[_KEY_WORDS : _KEY_WORDS + blocks].view(np.float32)
  code_words = words[_KEY_WORDS + blocks :]
  bad = scales[~(np.isfinite(scales) & (scales >= 0))]
  if bad.size:
    raise ValueError(
      f'{WORDS.name}: expected finite scales >= 0, received {bad[0]}. The '
      'payload was damaged or made by another codec: send it again.'
    )
  codes = wire.join(CODES.unpack(tf.constant(code_words))).numpy()
  fired = np.count_nonzero(
    codes[: blocks * block].reshape(blocks, block), axis=1
  )
  # In units of the probe's power of two elements have at most the root mean
  # square 2, or 4 where that power was limited; a norm that is no float32 is
  # left to fail. The square of a block, rotated, is `block` times that of its
  # elements. All of it but _BORDER**2 is in what fires, whose magnitudes' sum,
  # by which a scale divides, is at least the root of that, and at least as many
  # borders as fire.
  share = np.maximum(1 - _BORDER**2, (_BORDER * fired) ** 2 / block)
  least = np.sum(scales.astype(np.float64) ** 2 * share)
  if least > 1.01 * 16 * block * num_elements:
    raise ValueError(
      f'{WORDS.name}: expected scales of a gradient no larger than the agreed '
      f'probe, received up to {scales.max():g}. The payload was damaged or '
      'made by another codec: send it again.'
    )
  return CODES, code_words, blocks * block


def _rotate(flat, key):
  """float32 [blocks, block]: the elements with random signs, mixed."""
  size = flat.shape[0]
  blocks, block = _blocks(size)
  padded = tf.pad(flat, [[0, blocks * block - size]])
  padded *= _signs(key, blocks * block)
  return _hadamard(tf.reshape(padded, [blocks, block]))


def _signs(key, size):
  """float32 [size], each 1 or -1."""
  positions = tf.bitcast(tf.range(size), tf.uint32)
  bits = tf.bitcast(random_bits.element_bits(key, positions), tf.int32)
  return tf.where(bits < 0, -1.0, 1.0)


def _hadamard(rows):
  """Rows times the Hadamard matrix of their length, a power of 2.

  Only sums and differences, in one order in every mode. Sixteen elements are
  combined at a time, so that memory is passed through once for four steps.
  """
  count, size = rows.shape
  done = 1
  while done < size:
    radix = min(_RADIX, size // done)
    shaped = tf.reshape(rows, [count, size // (done * radix), radix, done])
    parts = tf.unstack(shaped, axis=2)
    step = 1
    while step < radix:
      for i in range(radix):
        if not i & step:
          a, b = parts[i], parts[i + step]
          parts[i], parts[i + step] = a + b, a - b
      step *= 2
    rows = tf.reshape(tf.stack(parts, axis=2), [count, size])
    done *= radix
  return rows


def _blocks(num_elements):
  """(number of blocks, elements of each); the last is filled with zeros."""
  if num_elements >= BLOCK:
    return -(-num_elements // BLOCK), BLOCK
  return 1, 2 ** math.ceil(math.log2(num_elements))


def _power_of_two(values):
  """The largest below each of float32 >= 0, from 2**-126 to 2**126.

  Products with it are exact, so that no compiler can make another number of
  them by joining a product and a sum.
  """
  bits = tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), 0x7F800000)
  return tf.clip_by_value(tf.bitcast(bits, tf.float32), 2.0**-126, 2.0**126)


def _per_element(values, sizes):
  """float32 [elements]: each variable's value for its elements."""
  return tf.concat(
    [tf.fill([size], values[i]) for i, size in enumerate(sizes)], axis=0
  )


WORDS = wire.CompositePacking(
  'eden_words', num_words=_num_words, planes=_decode, check=_check
)
