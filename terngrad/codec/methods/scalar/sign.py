"""The signs of a gradient, scaled by each variable's mean magnitude.

Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, ICML
2018, https://arxiv.org/abs/1802.04434, and signSGD with Majority Vote, ICLR
2019, https://arxiv.org/abs/1810.05291; for the scale Karimireddy et al., Error
Feedback Fixes SignSGD, ICML 2019, https://arxiv.org/abs/1901.09847. Departures:
the majority's signs are scaled too, by the mean of the workers' scales; and
zeros are sent as +1.
"""

import numpy as np
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods import by_variable
from terngrad.codec.methods import grouped
from terngrad.codec.stages import contract
from terngrad.codec.stages import packing
from terngrad.codec.stages import statistics
from terngrad.codec.stages import wire
from terngrad.native import grouped_ops

BITS = packing.one_bit()
_CODE = grouped_ops.Code(grouped_ops.SIGNS, levels=1, base=2, places=32)


def sign(decide='mean'):
  """Signs and a scale for each variable, the mean of its magnitudes.

  Args:
    decide: 'mean': the gradient is the mean of the workers' scaled signs; all
      receive the signs of all. 'majority': it is the sign that most workers
      have, 0 on a tie, times their mean scale; sums of signs are enough.

  Returns:
    A `contract.Codec`, or for the majority a `method.Method`.

  Raises:
    ValueError: `decide` is neither.
  """
  if decide == 'mean':
    native = grouped.on_kernels(WORDS, _CODE)
    return by_variable.by_variable(WORDS, _encode, native=native)
  if decide == 'majority':
    return _MAJORITY
  raise ValueError(
    f'decide: expected one of majority, mean, received {decide!r}.'
  )


def _encode(values, draws):
  del draws  # nothing is drawn
  scale = tf.bitcast(statistics.mean_magnitude(values), tf.int32)
  return tf.concat([scale[tf.newaxis], _sign_words(values)], axis=0)


def _sign_words(flat):
  # Compared as integers: compiled code may take subnormals for zeros.
  bits = tf.bitcast(flat, tf.int32)
  signs = tf.where((bits < 0) & (bits != tf.int32.min), -1, 1)
  return BITS.pack_flat(signs)


def _num_words(num_elements):
  return 1 + BITS.num_words(num_elements) if num_elements else 0


def _planes(words, num_elements):
  scale = tf.bitcast(words[0], tf.float32)
  signs = BITS.unpack_flat(words[1:], num_elements)
  return tf.where(signs < 0, -scale, scale)


def _check(words, num_elements):
  """Refuses a scale that is negative or not finite."""
  scales = words[:1].view(np.float32)
  if not np.all(np.isfinite(scales) & (scales >= 0)):
    raise ValueError(
      f'{WORDS.name}: expected a finite scale >= 0, received {scales[0]}. The '
      'payload was damaged or made by another codec: send it again.'
    )
  return BITS, words[1:], num_elements


# The mean magnitude, a float32, and the signs, 32 a word.
WORDS = wire.CompositePacking(
  'sign', num_words=_num_words, planes=_planes, check=_check
)


def _messages(shapes):
  size = sum(method.sizes_of(shapes))
  return ((method.code_sum(BITS, size, 1), method.float_sum(len(shapes))),)


def _send(gradients, states, received, context):
  del received
  scales = [
    statistics.mean_magnitude(values) if n else tf.constant(0.0)
    for values, n in zip(
      method.each(gradients, context), context.sizes, strict=True
    )
  ]
  words = _sign_words(method.flat(gradients))
  return [words, tf.bitcast(tf.stack(scales), tf.int32)], states


def _decode(received, states, context):
  messages = _messages(context.shapes)[0]
  votes, scales = (r.sum(m) for r, m in zip(received[0], messages, strict=True))
  # Multiplied, as everywhere: see `coded`.
  scales *= 1.0 / context.num_workers
  scaled = _scaled(tf.sign(votes), scales, context)
  return method.shaped(scaled, context), states


def _estimate(words, context):
  signs = wire.join(BITS.unpack(words[0]))
  return _scaled(signs, tf.bitcast(words[1], tf.float32), context)


def _scaled(signs, scales, context):
  """List of v float32: int32 signs of all elements times each one's scale."""
  signs = tf.split(signs[: sum(context.sizes)], context.sizes)
  return [tf.cast(own, tf.float32) * scales[i] for i, own in enumerate(signs)]


_MAJORITY = method.Method(
  name='sign by majority',
  traits=contract.Traits(
    unbiased=False, lossless=False, additive=False, randomness='none'
  ),
  begin=method.begin_with_norms,
  agrees=False,
  messages=_messages,
  send=(_send,),
  decode=_decode,
  estimate=_estimate,
  scope=contract.VARIABLE,
)
